"""How well a GPU was used: frame -> one row a GPU, a partition, a job, a memory kind. Definitions: COLUMNS.md.

Devices are never merged. Warm-up counts as busy inside the window and is otherwise left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from cuzkbench.analysis import intervals, rates
from cuzkbench.analysis.intervals import Intervals
from cuzkbench.analysis.rows import CODE, COPIES, KIND, NEVER, ON_WORKER, OPERATIONS, Rows, Table, limits, once, window
from cuzkbench.events import Memory, Phase
from cuzkbench.logs.log import Log
from cuzkbench.logs.validate import LATEST_NS

STATED_PROVE_START = "prove_start_ms"  # a COUNTER row of this name states a partition's prove_start
_SPENT = (
    Phase.SYNTHESIS, Phase.PREP, Phase.ALLOC, Phase.STAGE, *COPIES, Phase.KERNEL, Phase.FINISH, Phase.LOCK_WAIT,
    Phase.LOCK_HOLD,
)  # fmt: skip


@once
def metrics(
    log: Log, line_rate: float | None = None, start_ns: int | None = None, end_ns: int | None = None
) -> pd.DataFrame:
    """One row a GPU; `line_rate` in GB/s overrides what the log knows, start_ns and end_ns narrow the window."""
    table, part = Table.of(log), limits(start_ns, end_ns)
    done = partitions(log)
    return pd.DataFrame([_one(log, table, done, gpu, line_rate, part) for gpu in table.gpus], columns=_ONE)


_ONE = [
    "gpu", "window_start_ns", "window_end_ns", "window_ns", "kernel_busy_ns", "kernel_utilisation", "idle_ns",
    "idle_gaps", "lock_utilisation", "worker_utilisation", "hidden_transfer", "interleaving", "partitions",
    "cadence_ns", "median_cadence_ns", "cadence_q1_ns", "cadence_q3_ns", "ideal_cadence_ns", "efficiency",
]  # fmt: skip


def _one(
    log: Log, table: Table, done: pd.DataFrame, gpu: int, rate: float | None, part: tuple[int, int]
) -> dict[str, Any]:
    rows = table.rows.take(table.rows.gpu == gpu)
    start, end = window(rows, *part)
    kernels = intervals.clip(rows.union(Phase.KERNEL), start, end)
    copies = intervals.clip(rows.union(*COPIES), start, end)
    holds = rows.of(Phase.LOCK_HOLD)
    measured = done[(done["gpu"] == gpu) & ~done["warmup"] & done["completion_ns"].between(*part).fillna(False)]
    steps = np.diff(np.sort(measured["completion_ns"].to_numpy(np.int64)))
    cadence = float(round(steps.sum() / len(steps))) if len(steps) else np.nan
    q1, median, q3 = np.percentile(steps, [25, 50, 75]) if len(steps) else [np.nan] * 3
    ideal = _ideal(log, table, rows, measured, rate)
    return {
        "gpu": gpu,
        "window_start_ns": start,
        "window_end_ns": end,
        "window_ns": end - start,
        "kernel_busy_ns": kernels.measure,
        "kernel_utilisation": kernels.measure / (end - start) if end > start else 0.0,
        "idle_ns": end - start - kernels.measure,
        "idle_gaps": len(intervals.gaps(kernels, start, end).start),
        "lock_utilisation": _share(holds.start, holds.end, holds.warmup, part),
        "worker_utilisation": _workers(rows, part),
        "hidden_transfer": _ratio(intervals.intersection(copies, kernels).measure, copies.measure),
        "interleaving": _interleaving(rows, start, end, copies.measure),
        "partitions": len(measured),
        "cadence_ns": cadence,
        "median_cadence_ns": float(np.rint(median)),
        "cadence_q1_ns": float(np.rint(q1)),
        "cadence_q3_ns": float(np.rint(q3)),
        "ideal_cadence_ns": ideal,
        "efficiency": ideal / cadence if cadence else np.nan,
    }


def _ratio(share: float, whole: float) -> float:
    return share / whole if whole else np.nan


def _share(starts: np.ndarray, ends: np.ndarray, warmup: np.ndarray, part: tuple[int, int]) -> float:
    """Union of intervals over the time from the first start to the last end that is no warm-up; NaN without any."""
    counted = ~warmup & (ends > starts)
    if not counted.any():
        return np.nan
    start, end = max(int(starts[counted].min()), part[0]), min(int(ends[counted].max()), part[1])
    return _ratio(intervals.clip(intervals.union(starts, ends), start, end).measure, max(end - start, 0))


def _workers(rows: Rows, part: tuple[int, int]) -> float:
    """Utilisation by the workers' own account: each partition from its first to its last step on a worker."""
    if not rows.among((Phase.PREP, Phase.FINISH)).any():
        return np.nan
    steps = rows.take(rows.among(ON_WORKER) & (rows.who >= 0) & (rows.worker >= 0))
    count = int(steps.who.max(initial=-1)) + 1
    return _share(steps.first(count), steps.last(count), np.isin(np.arange(count), steps.who[steps.warmup]), part)


def _interleaving(rows: Rows, start: int, end: int, copied_ns: int) -> float:
    """Share of the copied time in which a kernel of another worker ran; NaN where no worker is known."""
    copies, kernels = rows.of(*COPIES), rows.of(Phase.KERNEL)
    workers = np.unique(copies.worker[copies.worker >= 0])
    if len(workers) == 0 or not copied_ns:
        return np.nan
    hidden = []
    for worker in workers:
        theirs = kernels.take((kernels.worker >= 0) & (kernels.worker != worker)).union()
        own = intervals.clip(copies.take(copies.worker == worker).union(), start, end)
        hidden.append(intervals.intersection(own, theirs))
    both = intervals.union(*(np.concatenate([getattr(part, side) for part in hidden]) for side in Intervals._fields))
    return both.measure / copied_ns


def _ideal(log: Log, table: Table, rows: Rows, measured: pd.DataFrame, rate: float | None) -> float:
    """The cadence that the slowest resource allows, ns; NaN without kernels.

    Kernel time a partition; transfer at line rate in the busier direction; synthesis over its workers (shared by
    the GPUs); a worker's own time over the workers: PREP, FINISH, and what the lock does not cover of ALLOC and
    STAGE as measured and of copies at line rate.
    """
    measured = measured[measured["kernel_ns"] > 0]
    if len(measured) == 0:
        return np.nan
    plan = log.header["plan"] or {}
    at = {direction: rates.line_rate(log, rows, direction, rate) for direction in COPIES}
    stages = rows.of(Phase.ALLOC, Phase.STAGE, *COPIES)
    stages = stages.take((stages.who >= 0) & (stages.worker >= 0) & (stages.end > stages.start))
    holds = rows.of(Phase.LOCK_HOLD)
    holds = holds.take(holds.who >= 0)
    held = intervals.merge(holds.who, holds.start, holds.end)
    covered = intervals.overlap(stages.start, stages.end, held, stages.who)
    share = 1 - covered / np.maximum(stages.end - stages.start, 1)
    own = (stages.end - stages.start).astype(float)
    transfer = np.zeros(2)
    counted = np.isin(stages.who, measured.index)
    for index, direction in enumerate(COPIES):
        copies = stages.phase == CODE[direction]
        own[copies] = at[direction].ns(stages.bytes[copies])
        transfer[index] = at[direction].ns(measured[f"{direction.lower()}_bytes"].sum())
    uncovered = float((own * share)[counted].sum())
    count = len(measured)
    workers = plan.get("workers") or len(np.unique(rows.worker[rows.worker >= 0])) or 1
    synthesis = table.rows.of(Phase.SYNTHESIS)
    makers = plan.get("synthesis_workers") or intervals.deepest(synthesis.start, synthesis.end) or 1
    limits = [
        measured["kernel_ns"].mean(),
        transfer.max() / count,
        measured["synthesis_ns"].mean() * len(table.gpus) / makers,
        (measured["prep_ns"].sum() + measured["finish_ns"].sum() + uncovered) / count / workers,
    ]
    return float(round(max(limits)))


def _known(instants: np.ndarray) -> np.ndarray:
    return np.abs(instants) != NEVER


def _nullable(values: np.ndarray) -> pd.arrays.IntegerArray:
    return pd.arrays.IntegerArray(np.where(_known(values), values, 0), ~_known(values))


@once
def partitions(log: Log) -> pd.DataFrame:
    """One row a partition, in the order of run, job and partition; instants that the log does not hold are NA."""
    table = Table.of(log)
    rows = table.rows.take(table.rows.who >= 0)
    count = len(table.partitions)
    out: dict[str, Any] = {}
    for phase in _SPENT:
        name, mine = phase.lower(), rows.of(phase)
        merged = intervals.merge(mine.who, mine.start, mine.end)
        out[f"{name}_ns"], out[f"{name}_bytes"] = np.zeros((2, count), np.int64)
        np.add.at(out[f"{name}_ns"], merged.group, merged.end - merged.start)
        np.add.at(out[f"{name}_bytes"], mine.who, mine.bytes)
    kernels, finish, queue = rows.of(Phase.KERNEL), rows.of(Phase.FINISH), rows.of(Phase.QUEUE)
    steps = rows.take(rows.among(ON_WORKER) & (rows.worker >= 0))
    first, last, taken, done = kernels.first(count), kernels.last(count), queue.last(count), finish.last(count)
    taken = np.where(_known(taken), taken, steps.first(count))
    whole = log.complete and (log.trailer or {}).get("ended", "done") == "done"
    if whole or not len(finish):  # in a broken run a partition without FINISH may lack kernels too
        done = np.where(_known(done), done, last)
    place = np.full(count, -1, np.int64)  # gpu and worker: of the last kernel, else of any step on a worker
    for mine in (steps, kernels.take(kernels.end == last[kernels.who])):
        latest = np.full(count, -1, np.int64)
        np.maximum.at(latest, mine.who, (mine.gpu.astype(np.int64) + 1) << 16 | mine.worker.astype(np.int64) + 1)
        place = np.where(latest >= 0, latest, place)
    proved, stated = np.where(_known(taken) & _known(last), last - taken, NEVER), _stated(log, table)
    proved[stated.index] = stated
    out |= {
        "gpu": np.where(place < 0, -1, (place >> 16) - 1).astype(np.int16),
        "worker": np.where(place < 0, -1, (place & 0xFFFF) - 1).astype(np.int16),
        "warmup": np.isin(np.arange(count), rows.who[rows.warmup]),
        "pickup_ns": _nullable(taken),
        "completion_ns": _nullable(done),
        "kernel_first_ns": _nullable(first),
        "kernel_last_ns": _nullable(last),
        "prove_start_ns": _nullable(proved),
    }
    return table.partitions.assign(**out)[["run", "job", "partition", *_PARTITION]]


_PARTITION = [
    "gpu", "worker", "warmup", "pickup_ns", "completion_ns", "synthesis_ns", "prep_ns", "alloc_ns", "stage_ns",
    "h2d_ns", "h2d_bytes", "kernel_ns", "kernel_first_ns", "kernel_last_ns", "d2h_ns", "d2h_bytes", "finish_ns",
    "lock_wait_ns", "lock_hold_ns", "prove_start_ns",
]  # fmt: skip


def _stated(log: Log, table: Table) -> pd.Series:
    """prove_start in ns by partition number, where the log states it."""
    here = (log.frame["name"] == STATED_PROVE_START).to_numpy() & table.rows.among([Phase.COUNTER])
    here &= (table.rows.who >= 0) & log.frame["value"].between(0, LATEST_NS / 1e6).to_numpy()
    values = np.rint(log.frame["value"].to_numpy()[here] * 1e6).astype(np.int64)
    return pd.Series(values, table.rows.who[here]).groupby(level=0).last()


@once
def bandwidth(
    log: Log, line_rate: float | None = None, start_ns: int | None = None, end_ns: int | None = None
) -> pd.DataFrame:
    """One row for each GPU, direction and memory kind that copied: bytes, summed durations, GB/s, line rate."""
    table = Table.of(log)
    rows = table.rows.of(*COPIES)
    rows = rows.take(~rows.warmup & (rows.bytes > 0) & (rows.end > rows.start))
    low, high = limits(start_ns, end_ns)
    rows = rows.take((rows.end > low) & (rows.start < high))
    found = []
    for gpu in np.unique(rows.gpu):
        whole = table.rows.take(table.rows.gpu == gpu)
        for direction in COPIES:
            rate = rates.line_rate(log, whole, direction, line_rate)
            for memory, kind in KIND.items():
                mine = rows.take((rows.gpu == gpu) & (rows.phase == CODE[direction]) & (rows.memory == kind))
                if len(mine):
                    size, spent = int(mine.bytes.sum()), int((mine.end - mine.start).sum())
                    named = (int(gpu), str(direction), str(memory), size, spent, size / spent)
                    found.append((*named, rate.gb_s, rate.source))
    return pd.DataFrame(found, columns=_BANDWIDTH)


_BANDWIDTH = [
    "gpu", "direction", "memory", "bytes", "duration_ns", "gb_s", "line_rate_gb_s", "line_rate_source",
]  # fmt: skip


def jobs(log: Log, start_ns: int | None = None, end_ns: int | None = None) -> pd.DataFrame:
    """One row a job: its completed partitions, the time from its first row to its last completion, proofs an hour."""
    table, done = Table.of(log), partitions(log)
    done = done[~done["warmup"] & done["completion_ns"].between(*limits(start_ns, end_ns)).fillna(False)]
    begun = table.rows.first(len(table.partitions))
    by_job = done.assign(begun=begun[done.index]).groupby("job", observed=True)
    wall = by_job["completion_ns"].max().astype(np.int64) - by_job["begun"].min()
    columns = {"partitions": by_job.size(), "wall_ns": wall, "proofs_per_hour": 3.6e12 / wall.where(wall > 0)}
    return pd.DataFrame(columns).reset_index()


def all_operations(log: Log) -> pd.DataFrame:
    """One row a GPU over kernels, copies and memsets alike, from the first to the last of any; warm-up included."""
    table, found = Table.of(log), []
    for gpu in table.gpus:
        rows = table.rows.take(table.rows.gpu == gpu).of(*OPERATIONS)
        if len(rows) == 0:
            continue
        kernels, copied, busy = rows.union(Phase.KERNEL), rows.union(*COPIES, Phase.D2D), rows.union()
        pageable = rows.of(*COPIES).take(rows.of(*COPIES).memory == KIND[Memory.PAGEABLE])
        start, end = int(rows.start.min()), int(rows.end.max())
        found.append(
            {
                "gpu": gpu,
                "span_ns": end - start,
                "kernels": int(rows.among([Phase.KERNEL]).sum()),
                "copies": int(rows.among([*COPIES, Phase.D2D]).sum()),
                "memsets": int(rows.among([Phase.MEMSET]).sum()),
                "kernel_union_ns": kernels.measure,
                "copy_union_ns": copied.measure,
                "overlap_ns": intervals.intersection(kernels, copied).measure,
                "busy_ns": busy.measure,
                "idle_ns": end - start - busy.measure,
                "idle_gaps": len(intervals.gaps(busy, start, end).start),
                "pageable_copy_union_ns": pageable.union().measure,
            }
        )
    return pd.DataFrame(found, columns=_OPERATIONS)


_OPERATIONS = [
    "gpu", "span_ns", "kernels", "copies", "memsets", "kernel_union_ns", "copy_union_ns", "overlap_ns",
    "busy_ns", "idle_ns", "idle_gaps", "pageable_copy_union_ns",
]  # fmt: skip
