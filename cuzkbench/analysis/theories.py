"""Seven theories of why the GPU idles, each tested by mending that fault alone in a replay of the log's own stages.

A cause says what the GPU waited for; a theory says what change helps. Supported: the mend removes at least 3 % of the
window; rejected: under 1 %; between, or where the replay misses the log's own cadence by over 5 %: cannot tell.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import pandas as pd

from cuzkbench.analysis.replay import CannotReplay, Outcome, Replay, replay
from cuzkbench.analysis.rows import once
from cuzkbench.costs import Work
from cuzkbench.events import Lane, Memory, Phase
from cuzkbench.logs.log import Log
from cuzkbench.simulate import Shape
from cuzkbench.stages import Stage
from cuzkbench.words import duration, rate, spaced, workers

SUPPORTED_FROM, REJECTED_BELOW, HEALTHY_FROM = 0.03, 0.01, 0.95
VERDICTS = ("supported", "cannot tell", "rejected")


class Verdict(NamedTuple):
    """What the log says of one theory. `evidence`: {what, value, unit, rows}, rows by place in the frame."""

    name: str
    verdict: str
    explained_idle_ns: int  # idle that the mend removes, summed over GPUs
    predicted_cadence_ns: int | None
    why: str
    evidence: list[dict[str, Any]]


class Mend(NamedTuple):
    """A run with one fault mended."""

    shape: Shape
    work: Work
    words: str


def _unlocked(run: Replay, lifted: Callable[[Stage], bool]) -> Shape:
    listed = tuple(dataclasses.replace(s, locked=s.locked and not lifted(s)) for s in run.shape.stages)
    return dataclasses.replace(run.shape, stages=listed)


def _lock_covers_cpu(run: Replay) -> Mend:
    shape = _unlocked(run, lambda stage: stage.lane is Lane.CPU or stage.phase is Phase.ALLOC)
    where = next((i for i, stage in enumerate(shape.stages) if stage.staged and stage.locked), None)
    if where is None:
        return Mend(shape, run.work, "PREP, ALLOC, STAGE and FINISH outside the lock")
    ring = Stage(Phase.STAGE, Lane.CPU, "ring", locked=False)
    shape = dataclasses.replace(shape, stages=(*shape.stages[:where], ring, *shape.stages[where:]))
    return Mend(shape, run.mended(run.at_line_rate(Memory.STAGED), ring=run.ring_ns), "staging outside the lock too")


def _lock_covers_transfer(run: Replay) -> Mend:
    copies = {Phase.H2D: any(map(any, run.work.copies)), Phase.D2H: any(run.work.stages["download"])}
    shape = _unlocked(run, lambda stage: copies.get(stage.phase, False))
    return Mend(shape, run.work, "the lock released for H2D and D2H and taken again")


def _bounce_buffer(run: Replay) -> Mend:
    kinds = {copy.memory for upload in run.copies for copy in upload}
    if not kinds or kinds == {Memory.UNKNOWN}:
        raise CannotReplay("the log does not say from which memory the uploads came")
    if Memory.PAGEABLE not in kinds:
        return Mend(run.shape, run.work, "no copy is from pageable memory")
    words = f"pageable copies at the line rate of {rate(run.rate.gb_s)} ({run.rate.source})"
    shape = dataclasses.replace(run.shape, settles=False)
    return Mend(shape, run.mended(run.at_line_rate(Memory.PAGEABLE)), spaced(words))


def _single_worker(run: Replay) -> Mend:
    more = run.shape.workers + 1
    return Mend(run.shape.with_workers(more), run.work, f"{workers(more)} a GPU instead of {run.shape.workers}")


def _synthesis_starved(run: Replay) -> Mend:
    if not any(run.work.stages["synthesis"]):
        raise CannotReplay("the log has no SYNTHESIS rows")
    return Mend(run.shape, run.mended(synthesis=[0] * len(run.work)), "synthesis in no time")


def _allocation_stalls(run: Replay) -> Mend:
    none = [0] * len(run.work)
    work = run.mended(register=none, unregister=none)
    return Mend(dataclasses.replace(run.shape, pool=None), work, "host buffers in no time")


MENDS: dict[str, Callable[[Replay], Mend]] = {
    "bounce-buffer": _bounce_buffer,
    "lock-covers-transfer": _lock_covers_transfer,
    "lock-covers-cpu": _lock_covers_cpu,
    "single-worker": _single_worker,
    "synthesis-starved": _synthesis_starved,
    "allocation-stalls": _allocation_stalls,
}


@once
def theories(
    log: Log, line_rate: float | None = None, start_ns: int | None = None, end_ns: int | None = None
) -> pd.DataFrame:
    """One row a theory (the fields of Verdict), what explains most idle first, of the log or a part of it.

    `line_rate` in GB/s overrides what the log knows. A log that lacks something gives "cannot tell", never an error.
    """
    busy, lack = None, ""
    try:
        run = replay(log, line_rate, start_ns, end_ns)
        busy = _compute_bound(run)
        own = run.own()
        verdicts = [_judge(run, own, name, _evidence(log, name)) for name in MENDS]
    except CannotReplay as why:
        lack = str(why)
        verdicts = [_untold(name, lack, _evidence(log, name)) for name in MENDS]
    verdicts.append(busy or _untold("compute-bound", lack, _evidence(log, "compute-bound")))
    verdicts.sort(key=lambda v: (VERDICTS.index(v.verdict), -v.explained_idle_ns))
    return pd.DataFrame(verdicts, columns=Verdict._fields).astype({"predicted_cadence_ns": "Int64"})


def _untold(name: str, lack: str, evidence: list[dict[str, Any]]) -> Verdict:
    return Verdict(name, "cannot tell", 0, None, lack, evidence)


def _judge(run: Replay, own: Outcome, name: str, evidence: list[dict[str, Any]]) -> Verdict:
    try:
        mend = MENDS[name](run)
    except CannotReplay as lack:
        return _untold(name, str(lack), evidence)
    mended = run.run(mend.shape, mend.work)
    share = (own.idle_ns - mended.idle_ns) / own.window_ns
    verdict = "supported" if share >= SUPPORTED_FROM else "rejected" if share < REJECTED_BELOW else "cannot tell"
    predicted = round(mended.cadence_ns * run.measured.cadence_ns / own.cadence_ns)
    why = f"{mend.words}: idle falls by {max(0.0, share):.1%} of the window, "
    why += f"cadence from {duration(run.measured.cadence_ns)} to {duration(predicted)}"
    return Verdict(name, verdict, max(0, round(share * run.measured.window_ns)), predicted, spaced(why), evidence)


def _compute_bound(run: Replay) -> Verdict:
    busy = run.measured.utilisation
    verdict = "supported" if busy >= HEALTHY_FROM else "rejected"
    evidence = [{"what": "kernel utilisation", "value": busy, "unit": "share", "rows": []}]
    why = f"kernels run {busy:.1%} of the window; healthy from {HEALTHY_FROM:.0%}"
    return Verdict("compute-bound", verdict, 0, round(run.measured.cadence_ns), why, evidence)


def _evidence(log: Log, name: str) -> list[dict[str, Any]]:
    """Numbers that a reader can check in the log, with the rows that show them best (three at most, longest first)."""
    frame = log.frame[~log.frame["warmup"].to_numpy()]
    phase, took = frame["phase"], frame["end_ns"] - frame["start_ns"]

    def fact(what: str, rows: pd.Series, value: float | None = None, unit: str = "ns") -> list[dict[str, Any]]:
        if not rows.any():
            return []
        worst = took[rows].sort_values(ascending=False, kind="stable").index[:3].tolist()
        return [{"what": what, "value": int(took[rows].sum()) if value is None else value, "unit": unit, "rows": worst}]

    if name == "bounce-buffer":
        rows = (phase == Phase.H2D) & (frame["memory"] == Memory.PAGEABLE) & (took > 0)
        median = float((frame["bytes"][rows] / took[rows]).median()) if rows.any() else None
        return fact("median rate of pageable copies", rows, median, "GB/s")
    if name in ("lock-covers-cpu", "lock-covers-transfer"):
        cpu = [Phase.PREP, Phase.ALLOC, Phase.STAGE, Phase.FINISH]
        holds = frame[["start_ns", "end_ns"]].where(phase == Phase.LOCK_HOLD)
        held = holds.groupby([frame["job"], frame["partition"]], observed=True)
        first, last = held["start_ns"].transform("min"), held["end_ns"].transform("max")
        inside = (frame["start_ns"] >= first) & (frame["end_ns"] <= last)
        rows = phase.isin(cpu if name == "lock-covers-cpu" else [Phase.H2D, Phase.D2H]) & inside
        return fact("under the lock", rows) + fact("waiting for the lock", phase == Phase.LOCK_WAIT)
    if name == "single-worker":
        used = frame[phase == Phase.KERNEL].groupby("gpu", observed=True)["worker"].nunique()
        return [{"what": "workers a GPU", "value": int(used.max()), "unit": "1", "rows": []}] if len(used) else []
    if name == "synthesis-starved":
        return fact("synthesis", phase == Phase.SYNTHESIS)
    return fact("waiting for or making host buffers", phase == Phase.ALLOC)
