"""Why the GPU waited: every idle nanosecond of the window gets exactly one cause.

The question is what the partition whose kernel ends a gap was doing then; the first rule that holds wins (COLUMNS.md
lists the rules). All rules of one GPU work on one time axis: each claims stretches of what no earlier rule has
claimed, so the causes sum to the idle time whatever the log holds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from cuzkbench.analysis import intervals, rates
from cuzkbench.analysis.reasons import Causes, Reason, Steps, sentences
from cuzkbench.analysis.rows import CODE, COPIES, KIND, ON_WORKER, Rows, Table, once, window
from cuzkbench.events import GapCause, Memory, Phase
from cuzkbench.logs.foreign import LAUNCH
from cuzkbench.logs.log import Log

MERGE_NS = 100_000  # rows of one partition, phase and memory kind that are less apart are one
SHORT_NS = 100_000  # a stretch up to this long without a cause is launch and synchronisation latency
_NEVER = np.iinfo(np.int64).max
_CAUSES, _REASONS = list(GapCause), list(Reason)
_STEPS = (Phase.ALLOC, Phase.LOCK_WAIT, Phase.LOCK_HOLD, Phase.PREP, Phase.STAGE, *COPIES, Phase.FINISH)
_OFF_GPU = (Phase.SYNTHESIS, Phase.QUEUE, Phase.ALLOC, Phase.HOST_SYNC)  # rows without a gpu that concern every gpu
_EARLY = 1  # `kind` of an ALLOC row of a partition that no worker has picked up
_DIRECT = (Memory.PINNED, Memory.REGISTERED, Memory.STAGED)


class _Pieces(NamedTuple):
    """Stretches with one cause each: times, the gap, the step and the other partition that explain it."""

    start: np.ndarray
    end: np.ndarray
    gap: np.ndarray
    cause: np.ndarray
    reason: np.ndarray
    step: np.ndarray
    other: np.ndarray


@once
def gaps(
    log: Log, line_rate: float | None = None, start_ns: int | None = None, end_ns: int | None = None
) -> pd.DataFrame:
    """One row a stretch of idle time with one cause, by GPU and time; start_ns and end_ns cut a part out.

    Raises ValueError for a line rate (GB/s) that is not above 0.
    """
    table = Table.of(log)
    low, high = (-_NEVER if start_ns is None else start_ns), (_NEVER if end_ns is None else end_ns)
    frames = [_Gpu(log, table, gpu, line_rate).attribute().frame(low, high) for gpu in table.gpus]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=_COLUMNS)


_COLUMNS = ["gpu", "start_ns", "end_ns", "cause", "job", "partition", "worker", "why"]


class _Gpu:
    """The idle time of one GPU while it is being attributed."""

    def __init__(self, log: Log, table: Table, gpu: int, line_rate: float | None) -> None:
        self.log, self.table, self.gpu = log, table, gpu
        every = table.rows
        rows = every.take((every.gpu == gpu) | (every.gpu < 0) & every.among(_OFF_GPU))
        self.rows = rows.take(rows.end > rows.start)
        self.rates = {way: rates.line_rate(log, self.rows, way, line_rate) for way in COPIES}
        kernels = self.rows.of(Phase.KERNEL)
        idle = intervals.gaps(kernels.union(), *window(kernels))
        # whose kernel ends a gap: of several the known, then the lowest partition and worker
        order = np.lexsort((kernels.worker, kernels.who, kernels.who < 0, kernels.start))
        ender = order[np.searchsorted(kernels.start[order], idle.end, side="left")]
        self.start, self.end = idle
        self.who, self.worker = kernels.who[ender], kernels.worker[ender].astype(np.int64)
        self.known, self.unknown = np.flatnonzero(self.who >= 0), np.flatnonzero(self.who < 0)
        self.steps = _steps(self.rows)
        self.free = idle
        self.claimed: list[_Pieces] = []

    def claim(
        self,
        gap: np.ndarray,
        start: np.ndarray,
        end: np.ndarray,
        cause: GapCause,
        reason: Reason,
        step: np.ndarray | int = -1,
        other: np.ndarray | int = -1,
    ) -> None:
        """Give a cause to what is still free of these stretches, which are disjoint and each within its gap."""
        rows, at = intervals.pairs(start, end, self.free)
        if len(rows) == 0:
            return
        starts, ends = np.maximum(start[rows], self.free.start[at]), np.minimum(end[rows], self.free.end[at])
        causes, reasons = (np.full(len(rows), code) for code in (_CAUSES.index(cause), _REASONS.index(reason)))
        steps, others = (np.broadcast_to(value, len(start))[rows] for value in (step, other))
        self.claimed.append(_Pieces(starts, ends, gap[rows], causes, reasons, steps, others))
        self.free = intervals.difference(self.free, intervals.union(starts, ends))

    def inside(self, gap: np.ndarray, group: np.ndarray, other: Any) -> tuple[np.ndarray, ...]:
        """What a group did within each gap: gap, start, end and index into `other`."""
        rows, at = intervals.pairs_within(group, self.start[gap], self.end[gap], other)
        start = np.maximum(self.start[gap][rows], other.start[at])
        return gap[rows], start, np.minimum(self.end[gap][rows], other.end[at]), at

    def attribute(self) -> _Gpu:
        """Apply the rules in order."""
        if len(self.known):
            self._before_pickup()
            self._waiting_for_the_lock()
            self._own_stages()
        if len(self.unknown):
            self._without_partition()
        self._left_over()
        return self

    def _before_pickup(self) -> None:
        """Rules 1 and 2. Without rows of synthesis or pick-up only a worker that is seen busy explains a stretch."""
        gap, steps, count = self.known, self.steps, len(self.table.partitions)
        who, start, end = self.who[gap], self.start[gap], self.end[gap]
        ready = _last(self.rows.of(Phase.SYNTHESIS), count)
        ready = np.where(ready > -_NEVER, ready, -_last(_turned(self.rows.of(Phase.QUEUE)), count))
        synthesised = np.abs(ready) < _NEVER
        ready = np.where(synthesised, ready, -_NEVER)
        early = steps.mask(Phase.ALLOC) & ((steps.kind == _EARLY) | (steps.start < ready[steps.who]))
        buffers = intervals.merge(steps.who[early], steps.start[early], steps.end[early])
        waiting, since, until, _ = self.inside(gap, who, buffers)
        self.claim(waiting, since, until, GapCause.ALLOCATION, Reason.BUFFER)
        self.claim(gap, start, np.minimum(end, ready[who]), GapCause.SYNTHESIS_STARVED, Reason.SYNTHESIS)

        taken = _last(self.rows.of(Phase.QUEUE), count)
        on_worker = self.rows.take(self.rows.among(ON_WORKER) & (self.rows.worker >= 0) & (self.rows.who >= 0))
        begun = -_last(_turned(on_worker.take(~on_worker.among([Phase.KERNEL]))), count)
        taken = np.where(taken > -_NEVER, taken, begun)
        picked = taken < _NEVER  # a kernel alone does not show when its partition was picked up
        taken = np.where(picked, taken, -_last(_turned(on_worker), count))
        until = np.minimum(end, taken[who])
        worker = self.worker[gap]
        finishing = steps.mask(Phase.FINISH) & (steps.worker >= 0)
        finish = intervals.latest(steps.worker[finishing], steps.start[finishing], steps.end[finishing])
        at = intervals.pairs_within(worker, start, until, finish)
        self._busy(at, gap, start, until, finish, GapCause.CPU_FINISH, Reason.FINISH, steps.who[finishing][finish.row])
        certain = synthesised[who] & picked[who]
        self.claim(gap[certain], start[certain], until[certain], GapCause.WORKERS_BUSY, Reason.QUEUED)
        unsure = ~certain
        if unsure.any():
            busy = intervals.latest(on_worker.worker, on_worker.start, on_worker.end)
            few = gap[unsure], start[unsure], until[unsure]
            at = intervals.pairs_within(worker[unsure], *few[1:], busy)
            self._busy(at, *few, busy, GapCause.WORKERS_BUSY, Reason.BUSY, on_worker.who[busy.row])

    def _busy(
        self,
        at: tuple[np.ndarray, np.ndarray],
        gap: np.ndarray,
        start: np.ndarray,
        until: np.ndarray,
        busy: Any,
        cause: GapCause,
        reason: Reason,
        other: np.ndarray,
    ) -> None:
        rows, index = at
        starts, ends = np.maximum(start[rows], busy.start[index]), np.minimum(until[rows], busy.end[index])
        self.claim(gap[rows], starts, ends, cause, reason, other=other[index])

    def _waiting_for_the_lock(self) -> None:
        """Rule 3: what the holder does while the partition waits."""
        waits, holds = self.steps.of(Phase.LOCK_WAIT), self.steps.of(Phase.LOCK_HOLD)
        gap, start, end, _ = self.inside(self.known, self.who[self.known], waits)
        holders = intervals.latest(np.zeros(len(holds.start)), holds.start, holds.end)
        rows, at = intervals.pairs_within(np.zeros(len(gap)), start, end, holders)
        other = holds.group[holders.row[at]]
        rows, at, other = (values[other != self.who[gap[rows]]] for values in (rows, at, other))
        held = gap[rows], np.maximum(start[rows], holders.start[at]), np.minimum(end[rows], holders.end[at])
        rows, at = intervals.pairs_within(other, *held[1:], self.steps.timeline)
        timeline, by = self.steps.timeline, other[rows]
        starts, ends = np.maximum(held[1][rows], timeline.start[at]), np.minimum(held[2][rows], timeline.end[at])
        self._locked(held[0][rows], starts, ends, timeline.row[at], Reason.LOCK, by)
        self.claim(held[0], held[1], held[2], GapCause.LOCKED_OTHER, Reason.LOCK, other=other)
        self.claim(gap, start, end, GapCause.LOCKED_OTHER, Reason.NOBODY)

    def _locked(
        self, gap: np.ndarray, start: np.ndarray, end: np.ndarray, step: np.ndarray, reason: Reason, other: Any = -1
    ) -> None:
        """The lock over a CPU stage, over a copy within its line-rate time, over a copy beyond it."""
        steps, by = self.steps, np.broadcast_to(other, len(gap))
        copy = np.isin(steps.phase[step], [CODE[way] for way in COPIES])
        sized = copy & (steps.bytes[step] > 0)
        fair = steps.start[step] + self._line_ns(step, steps.bytes[step])
        for mask, low, high, cause in (
            (~copy, start, end, GapCause.LOCKED_CPU),
            (sized, start, np.minimum(end, fair), GapCause.LOCKED_TRANSFER),
            (sized, np.maximum(start, fair), end, GapCause.LOCKED_SLOW_TRANSFER),
        ):
            self.claim(gap[mask], low[mask], high[mask], cause, reason, step[mask], by[mask])

    def _line_ns(self, step: np.ndarray, size: np.ndarray) -> np.ndarray:
        """Nanoseconds that so many bytes take at line rate in the direction of the step."""
        down = self.steps.phase[step] == CODE[Phase.D2H]
        return np.where(down, self.rates[Phase.D2H].ns(size), self.rates[Phase.H2D].ns(size))

    def _own_stages(self) -> None:
        """Rules 4 to 6: inside its own hold as far as the wait for it cost time, else the stage itself."""
        steps, timeline = self.steps, self.steps.timeline
        gap, start, end, at = self.inside(self.known, self.who[self.known], timeline)
        before = steps.phase[timeline.row[at]] != CODE[Phase.FINISH]
        gap, start, end, step = (values[before] for values in (gap, start, end, timeline.row[at]))

        # rule 4: past the moment at which everything before the kernel would have been over without the wait
        holds, waits = steps.of(Phase.LOCK_HOLD), steps.of(Phase.LOCK_WAIT)
        since = np.where(holds.group == np.roll(holds.group, 1), np.roll(holds.end, 1), -_NEVER // 2)
        since[:1] = -_NEVER // 2
        waited = intervals.overlap_within(holds.group, since, holds.start, waits)
        last = intervals.last_before(self.who, self.end, timeline)
        over = (
            np.where(last >= 0, np.minimum(timeline.end[last], self.end), self.end) if len(timeline.end) else self.end
        )
        rows, hold = intervals.pairs_within(self.who[gap], start, end, holds)
        moment = over[gap[rows]] - waited[hold]
        low = np.maximum(np.maximum(start[rows], holds.start[hold]), moment)
        self._locked(gap[rows], low, np.minimum(end[rows], holds.end[hold]), step[rows], Reason.OWN_HOLD)

        for phase, cause in (
            (Phase.PREP, GapCause.CPU_PREP),
            (Phase.ALLOC, GapCause.ALLOCATION),
            (Phase.STAGE, GapCause.STAGING),
        ):
            mine = steps.phase[step] == CODE[phase]
            self.claim(gap[mine], start[mine], end[mine], cause, Reason.STAGE, step[mine])
        copy = np.isin(steps.phase[step], [CODE[way] for way in COPIES]) & (steps.bytes[step] > 0)
        gap, start, end, step = (values[copy] for values in (gap, start, end, step))
        size, shared = steps.bytes[step], self._contending(step)
        alone = steps.start[step] + self._line_ns(step, size)
        fair = steps.start[step] + self._line_ns(step, size + shared)
        self.claim(gap, start, np.minimum(end, alone), GapCause.TRANSFER, Reason.STAGE, step)
        self.claim(gap, np.maximum(start, alone), np.minimum(end, fair), GapCause.LINK_CONTENTION, Reason.SHARED, step)
        self.claim(gap, np.maximum(start, fair), end, GapCause.SLOW_TRANSFER, Reason.STAGE, step)

    def _contending(self, step: np.ndarray) -> np.ndarray:
        """Bytes that other copies in the same direction moved during each of these copies, spread evenly."""
        steps, found = self.steps, np.zeros(len(step))
        for way in COPIES:
            mine = steps.phase[step] == CODE[way]
            copies = steps.mask(way)
            strangers = self.rows.take(self.rows.among([way]) & (self.rows.who < 0))
            rows = [
                np.concatenate((getattr(steps, name)[copies], getattr(strangers, name)))
                for name in ("start", "end", "bytes")
            ]
            during = intervals.amount_before(steps.end[step[mine]], *rows)
            during -= intervals.amount_before(steps.start[step[mine]], *rows) + steps.bytes[step[mine]]
            found[mine] = np.where(during < 1, 0, during)  # less than a byte is rounding
        return found

    def _without_partition(self) -> None:
        """Foreign logs: copies in flight by memory kind, host waits, launch latency, the device's own memory work."""
        rows, frame = self.rows, self.log.frame
        copies = rows.of(*COPIES)
        direct = np.isin(copies.memory, [KIND[memory] for memory in _DIRECT])
        pageable = copies.memory == KIND[Memory.PAGEABLE]
        launched = (frame["name"] == LAUNCH).to_numpy() & self.table.rows.among([Phase.OTHER])
        launched &= np.isin(self.table.rows.gpu, [self.gpu, -1])
        for found, cause, reason in (
            (copies.take(pageable).union(), GapCause.SLOW_TRANSFER, Reason.PAGEABLE_COPY),
            (copies.take(direct).union(), GapCause.TRANSFER, Reason.PINNED_COPY),
            (copies.union(), GapCause.UNATTRIBUTED, Reason.UNKNOWN_COPY),
            (rows.union(Phase.HOST_SYNC), GapCause.HOST_WAIT, Reason.HOST),
            (self.table.rows.take(launched).union(), GapCause.LAUNCH_OR_SYNC, Reason.LAUNCHED),
            (rows.union(Phase.MEMSET, Phase.D2D), GapCause.UNATTRIBUTED, Reason.DEVICE_MEMORY),
        ):
            gap = self.unknown
            index, at = intervals.pairs(self.start[gap], self.end[gap], found)
            starts = np.maximum(self.start[gap][index], found.start[at])
            self.claim(gap[index], starts, np.minimum(self.end[gap][index], found.end[at]), cause, reason)

    def _left_over(self) -> None:
        """Rule 7: between kernels of one partition, or short; what is still left cannot be told."""
        start, end = self.free
        gap = np.searchsorted(self.end, start, side="right")
        kernels = self.rows.of(Phase.KERNEL)
        kernels = kernels.take(kernels.who >= 0)
        first = -_last(_turned(kernels), len(self.table.partitions))
        known = self.who[gap] >= 0
        between = np.zeros(len(gap), bool)
        between[known] = first[self.who[gap][known]] < start[known]
        short = end - start <= SHORT_NS
        for mask, cause, reason in (
            (between, GapCause.LAUNCH_OR_SYNC, Reason.BETWEEN),
            (~between & short, GapCause.LAUNCH_OR_SYNC, Reason.SHORT),
            (~between & ~short & known, GapCause.UNATTRIBUTED, Reason.SILENT),
            (~between & ~short & ~known, GapCause.UNATTRIBUTED, Reason.STRANGER),
        ):
            self.claim(gap[mask], start[mask], end[mask], cause, reason)

    def frame(self, low: int, high: int) -> pd.DataFrame:
        """The claims as rows in order of time, neighbours of one meaning joined, cut to [low, high)."""
        columns = zip(*self.claimed, strict=True) if self.claimed else [[np.empty(0, np.int64)]] * 7
        pieces = np.array([np.concatenate(column) for column in columns], np.int64)
        pieces = pieces[:, np.argsort(pieces[0], kind="stable")]
        fresh = np.ones(pieces.shape[1], bool)
        fresh[1:] = (pieces[0, 1:] != pieces[1, :-1]) | (pieces[2:, 1:] != pieces[2:, :-1]).any(axis=0)
        ends = pieces[1, np.concatenate((fresh[1:], fresh[:1]))]
        pieces = pieces[:, fresh]
        pieces[0], pieces[1] = np.maximum(pieces[0], low), np.minimum(ends, high)
        piece = _Pieces(*pieces[:, pieces[0] < pieces[1]])
        who, worker, partitions = self.who[piece.gap], self.worker[piece.gap], self.table.partitions
        jobs = partitions["job"].cat
        names = pd.Index(["", *(name for name in jobs.categories if name)], dtype="str")
        job = np.concatenate((names.get_indexer(jobs.categories)[jobs.codes], [0])).astype(np.int32)
        numbers = partitions["partition"].to_numpy()
        causes = Causes(piece.reason, who, worker, piece.step, piece.other, piece.end - piece.start)
        return pd.DataFrame(
            {
                "gpu": np.full(len(who), self.gpu, np.int16),
                "start_ns": piece.start,
                "end_ns": piece.end,
                "cause": pd.Categorical.from_codes(
                    piece.cause, pd.Index([str(cause) for cause in _CAUSES], dtype="str")
                ),
                "job": pd.Categorical.from_codes(job[who], names),
                "partition": np.append(numbers, -1)[who].astype(np.int32),
                "worker": worker.astype(np.int16),
                "why": sentences(causes, self.steps, numbers, self.rates),
            }
        )


def _steps(rows: Rows) -> Steps:
    """The merged rows of the partitions."""
    mine = rows.take(rows.among(_STEPS) & (rows.who >= 0))
    early = mine.among([Phase.ALLOC]) & (mine.worker < 0)
    kind = np.where(mine.among(COPIES), mine.memory, np.where(early, _EARLY, 0))
    merged = intervals.merge((mine.who * len(CODE) + mine.phase) * len(KIND) + kind, mine.start, mine.end, MERGE_NS - 1)
    who, rest = np.divmod(merged.group, len(CODE) * len(KIND))
    phase, kind = np.divmod(rest, len(KIND))
    worker = np.full(len(who), -1, np.int64)
    np.maximum.at(worker, merged.member, mine.worker)
    stage = ~np.isin(phase, [CODE[Phase.LOCK_WAIT], CODE[Phase.LOCK_HOLD]])
    stage &= (phase != CODE[Phase.ALLOC]) | (kind != _EARLY)
    timeline = intervals.latest(who[stage], merged.start[stage], merged.end[stage])
    timeline = timeline._replace(row=np.flatnonzero(stage)[timeline.row])
    return Steps(who, phase, kind, worker, merged.start, merged.end, merged.total(mine.bytes), timeline)


def _last(rows: Rows, partitions: int) -> np.ndarray:
    """The latest end of each partition's rows, -_NEVER without."""
    out = np.full(partitions, -_NEVER)
    known = rows.who >= 0
    np.maximum.at(out, rows.who[known], rows.end[known])
    return out


def _turned(rows: Rows) -> Rows:
    """Rows on a reversed time axis: the latest end there is minus the earliest start here."""
    return replace(rows, start=-rows.end, end=-rows.start)
