"""A log's own stages as the simulator's input, and what a simulation of them comes to: for theories and what-if."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from cuzkbench.analysis import intervals
from cuzkbench.analysis.life import NEVER, Copy, Life
from cuzkbench.analysis.metrics import metrics, partitions
from cuzkbench.analysis.rates import LineRate, line_rate
from cuzkbench.analysis.rows import KIND, Rows, Table, limits, once
from cuzkbench.costs import Work
from cuzkbench.events import Lane, Memory, Phase
from cuzkbench.logs.log import Log
from cuzkbench.plan import RunPlan
from cuzkbench.simulate import Shape, Span, simulate_core
from cuzkbench.stages import MEMORIES, Stage, stages

TOLERANCE = 0.05  # a replay that misses the log's own cadence by more cannot be trusted with a change
MOST_PARTITIONS = 1000  # of one log that are replayed, 0.1 to 0.3 s each time; longer logs repeat themselves


class CannotReplay(ValueError):
    """Why a log cannot be replayed: what it lacks, or that its replay goes another way."""


class Outcome(NamedTuple):
    """What a run comes to by the definitions of metrics: means over its GPUs, warm-up left out."""

    cadence_ns: float
    utilisation: float
    idle_ns: int  # summed over GPUs, as window_ns
    window_ns: int
    prove_start_ns: float  # median


@dataclass(frozen=True)
class Replay:
    """What the log's partitions took (`work`, in order of synthesis), what served them (`shape`), what it came to."""

    shape: Shape
    work: Work
    warmup: list[bool]
    leading: int  # partitions that reached the GPU no later than the warm-up: all it has, unless others overtook it
    lock: str  # the plan's, or as the rows show
    memory: str
    copies: list[list[Copy]]
    ring_ns: list[int]  # threads filling the pinned ring
    rate: LineRate  # towards the device, under the log's own CPU load
    measured: Outcome
    kind: str  # of the device
    sharing_known: bool  # two uploads met, or it makes no difference how they would share the bus

    def run(
        self,
        shape: Shape | None = None,
        work: Work | None = None,
        chosen: Sequence[int] | None = None,
        as_logged: bool = False,
    ) -> Outcome:
        """Simulate, with another shape, other durations, or other partitions in their place.

        Of a change count the partitions after the first `leading`, whichever these are: that another one overtakes the
        warm-up is no gain. `as_logged`: those that the log does not mark as warm-up.
        """
        work = work or self.work
        if chosen is not None:
            work = work.take(chosen)
        warm = self.warmup if as_logged and self.leading > sum(self.warmup) else self.leading
        return outcome(simulate_core(shape or self.shape, work), work, warm)

    def own(self) -> Outcome:
        """The replay without a change; raises CannotReplay where it misses the log's own cadence."""
        missed = self.run(as_logged=True).cadence_ns / self.measured.cadence_ns - 1
        if abs(missed) > TOLERANCE:
            side = "below" if missed < 0 else "above"
            raise CannotReplay(f"the replay of the log's own stages misses its cadence: {abs(missed):.1%} {side} it")
        run = self.run()
        if run.cadence_ns <= 0:
            raise CannotReplay("fewer than two partitions reached the GPU after the warm-up")
        return run

    def as_it_shared(self) -> Replay:
        """The same with that way of sharing the bus which gives the log's own cadence best."""
        runs = [dataclasses.replace(self, shape=shape) for shape in ways(self.shape)]
        return min(runs, key=lambda run: abs(run.run(as_logged=True).cadence_ns - self.measured.cadence_ns))

    def at_line_rate(self, kind: Memory) -> list[tuple[int, ...]]:
        """The uploads with every copy of that kind at line rate, none slower than it was."""
        return [
            tuple(min(copy.ns, int(self.rate.ns(copy.bytes))) if copy.memory is kind else copy.ns for copy in upload)
            for upload in self.copies
        ]

    def mended(self, copies: list[tuple[int, ...]] | None = None, **durations: list[int]) -> Work:
        """The log's work with other uploads or stage durations."""
        changed = dict(self.work.stages) | durations
        return dataclasses.replace(self.work, stages=changed, copies=copies or self.work.copies)


def outcome(spans: list[Span], work: Work, warm: int | Sequence[bool]) -> Outcome:
    """What simulated spans come to. `warm`: which partitions are warm-up, or how many of the first to reach the GPU."""
    picked = {span.partition: span.end for span in spans if span.name == "queue"}
    done = {span.partition: span.end + work.tail_ns[span.partition] for span in spans if span.gpu >= 0}
    reached = []
    for span in spans:
        if span.name == "kernels":
            begin = span.granted + work.lead_ns[span.partition]
            reached.append((begin, begin + work.extent_ns[span.partition], span.partition, span.gpu))
    reached.sort()
    warmup = {k for _, _, k, _ in reached[:warm]} if isinstance(warm, int) else set(np.flatnonzero(warm).tolist())
    window, busy, gaps = 0, 0.0, []
    for gpu in {row[3] for row in reached}:
        mine = [row[:3] for row in reached if row[3] == gpu]
        measured = [row for row in mine if row[2] not in warmup]
        if measured:
            first, final = measured[0][0], max(end for _, end, _ in mine)
            window += final - first
            for begin, end, k in mine:
                busy += work.busy_ns[k] * max(0, end - max(begin, first)) / max(1, end - begin)
        if len(measured) > 1:
            completions = [done[k] for _, _, k in measured]
            gaps.append((max(completions) - min(completions)) / (len(completions) - 1))
    starts = [end - picked[k] for _, end, k, _ in reached if k not in warmup]
    return Outcome(
        sum(gaps) / len(gaps) if gaps else 0.0,
        busy / window if window else 0.0,
        round(window - busy),
        window,
        float(np.median(starts or 0)),
    )


@once
def replay(log: Log, rate: float | None = None, start_ns: int | None = None, end_ns: int | None = None) -> Replay:
    """The log as input; `rate` in GB/s overrides the line rate. Raises CannotReplay with what the log lacks.

    Of a part of it, what completed before counts as warm-up, and what completed later is left out.
    """
    table = Table.of(log)
    proofs = partitions(log)
    proofs = proofs[proofs["kernel_last_ns"].notna()]
    proofs = proofs[(proofs["completion_ns"] <= limits(start_ns, end_ns)[1]).fillna(False)]
    if not len(proofs):
        raise CannotReplay("the log has no kernels whose partition is known")
    if min(proofs["gpu"].min(), proofs["worker"].min()) < 0:
        raise CannotReplay("the log does not say which GPU and worker proved which partition")
    figures = metrics(log, rate, start_ns, end_ns)
    if not (figures["cadence_ns"] > 0).any():
        raise CannotReplay("fewer than two measured partitions on every GPU: no cadence")
    window, idle = int(figures["window_ns"].sum()), int(figures["idle_ns"].sum())
    warmup = proofs["warmup"].to_numpy() | (proofs["completion_ns"] < (start_ns or 0)).to_numpy(bool)
    starts = float(proofs.loc[~warmup, "prove_start_ns"].median())
    measured = Outcome(figures["cadence_ns"].mean(), 1 - idle / max(1, window), idle, window, starts)

    life = Life(table.rows, proofs)
    plan = _plan(log)
    lock, memory = (plan.lock, plan.memory) if plan else _policies(life)
    settles = driver_lock(memory, log.kind)
    listed = steps_of(lock, memory, log.kind)
    pinned = line_rate(log, table.rows, Phase.H2D, rate)
    durations, lead, copies, interleaved = life.walk(listed, pinned, settles)
    tail = life.free_workers(durations)
    made = life.first(Phase.SYNTHESIS), life.last(Phase.SYNTHESIS)
    durations["synthesis"] = made[1] - made[0] + life.woken
    order = np.lexsort((life.picked, made[1], made[0]))[:MOST_PARTITIONS]
    extent = life.kernels[1] - life.kernels[0]
    busy = proofs["kernel_ns"].to_numpy(np.int64)
    copies = [copies[k] for k in order]
    work = Work(
        {name: values[order].tolist() for name, values in durations.items()},
        [tuple(copy.ns for copy in upload) for upload in copies],
        *(values[order].tolist() for values in (lead, extent, busy, tail)),
    )
    met = interleaved is not None
    turns = (
        log.kind in ("emulated", "cuda") if interleaved is None else interleaved
    )  # whose bus takes them copy by copy
    shape = _shape(log, plan, listed, proofs, table.rows.of(Phase.SYNTHESIS))
    shape = dataclasses.replace(shape, stages=listed, interleaved=turns)
    run = Replay(
        shape,
        work,
        warmup[order].tolist(),
        leading(warmup[order][np.argsort(life.kernels[0][order], kind="stable")], shape.workers * shape.gpus),
        lock,
        memory,
        copies,
        proofs["stage_ns"].to_numpy(np.int64)[order].tolist(),
        pinned,
        measured,
        log.kind,
        met or not settles,
    )
    return run.as_it_shared() if settles and met else run


def leading(warmup: np.ndarray, workers: int) -> int:
    """How many of the first partitions to reach the GPU count as warm-up: up to the last one of it that was overtaken.

    A warm-up is overtaken by at most one partition of each worker; one that comes later belongs to another run.
    """
    early = warmup[: int(warmup.sum()) + workers]
    return int(np.flatnonzero(early).max(initial=-1)) + 1


def ways(shape: Shape) -> list[Shape]:
    """How two uploads under a driver's lock may share the bus, by which thread happens to get it; the middle one first.

    By turns; one upload after the other; by turns, and who copied is held up by the next copy.
    """
    kinds = ((True, False), (False, False), (True, True))
    return [dataclasses.replace(shape, interleaved=turns, settles=settles) for turns, settles in kinds]


def driver_lock(memory: str, kind: str) -> bool:
    """Whether uploads run under a lock of the driver that other threads' calls need too."""
    return kind == "cuda" and MEMORIES[memory] is Memory.PAGEABLE


def steps_of(lock: str, memory: str, kind: str) -> tuple[Stage, ...]:
    """The stages of a plan on a kind of device: CUDA takes back page-locked memory only from a GPU at rest."""
    return tuple(
        dataclasses.replace(stage, lane=Lane.COMPUTE) if kind == "cuda" and stage.name == "unregister" else stage
        for stage in stages(lock, memory)
    )


def _plan(log: Log) -> RunPlan | None:
    try:
        return RunPlan.from_mapping(log.header["plan"]) if log.header["plan"] else None
    except (TypeError, ValueError) as unknown:  # of another version, or no plan at all
        raise CannotReplay(f"its plan cannot be read: {unknown}") from None


def beginning(log: Log, most: int = 200, rate: float | None = None) -> Replay:
    """The replay of a log's first partitions, for answers that need many runs of it, and its own run checked.

    Raises CannotReplay.
    """
    ends = np.sort(partitions(log)["completion_ns"].dropna().to_numpy(np.int64))
    run = replay(log, rate, end_ns=int(ends[most - 1]) if len(ends) > most else None)
    run.own()
    return run


def _policies(life: Life) -> tuple[str, str]:
    """Lock and memory as the rows show them: the first stage that most partitions begin under the lock."""
    lock = "narrow"
    for name, phase in (("device", Phase.H2D), ("coarse", Phase.PREP)):
        first = life.first(phase)
        both = (first != NEVER) & (life.hold[0] != NEVER)
        if both.any() and np.mean(first[both] >= life.hold[0][both]) > 0.5:
            lock = name
    copies = life.rows.of(Phase.H2D)
    bytes_of = {name: int(copies.bytes[copies.memory == KIND[kind]].sum()) for name, kind in MEMORIES.items()}
    return lock, max(bytes_of, key=lambda name: bytes_of[name])


def _shape(log: Log, plan: RunPlan | None, listed: tuple[Stage, ...], proofs: pd.DataFrame, synthesis: Rows) -> Shape:
    """What served the partitions: the plan's, or as many workers and as much synthesis at once as the rows show."""
    if plan and plan.synthesis_workers and plan.queue_depth:
        allocated = ((log.trailer or {}).get("pool") or {}).get("allocated")
        return dataclasses.replace(Shape.of(plan), pool=allocated or Shape.of(plan).pool)
    gpus = proofs.groupby("gpu")["worker"].nunique()
    at_once = max(1, intervals.deepest(synthesis.start, synthesis.end))
    return Shape(listed, int(gpus.max()), len(gpus), at_once, float("inf"))
