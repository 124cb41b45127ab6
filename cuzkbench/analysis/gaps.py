"""Why the GPU waited: every idle nanosecond of the window gets exactly one cause.

The question is what the partition whose kernel ends a gap was doing then; the first rule that holds wins (COLUMNS.md
lists the rules). Idle time is cut wherever an answer could change, and each rule claims pieces that no earlier rule
has claimed, so the causes sum to the idle time whatever the log holds.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from cuzkbench.analysis import intervals, rates
from cuzkbench.analysis.intervals import Owned
from cuzkbench.analysis.reasons import EARLY, Pieces, Reason, Steps, sentences
from cuzkbench.analysis.rows import CODE, COPIES, KIND, NEVER, ON_WORKER, Rows, Table, limits, once, window
from cuzkbench.events import GapCause, Memory, Phase
from cuzkbench.logs.foreign import LAUNCH
from cuzkbench.logs.log import Log

MERGE_NS = 100_000  # rows of one partition, phase and memory kind that are less apart are one
SHORT_NS = 100_000  # a stretch up to this long without a cause is launch and synchronisation latency
_CAUSES, _REASONS = list(GapCause), list(Reason)
_STEPS = (Phase.ALLOC, Phase.LOCK_WAIT, Phase.LOCK_HOLD, Phase.PREP, Phase.STAGE, *COPIES, Phase.FINISH)
_OFF_GPU = (Phase.SYNTHESIS, Phase.QUEUE, Phase.ALLOC, Phase.HOST_SYNC)  # rows without a gpu that concern every gpu
_DIRECT = (Memory.PINNED, Memory.REGISTERED, Memory.STAGED)


@once
def gaps(
    log: Log, line_rate: float | None = None, start_ns: int | None = None, end_ns: int | None = None
) -> pd.DataFrame:
    """One row a stretch of idle time with one cause, by GPU and time; start_ns and end_ns cut a part out.

    Raises ValueError for a line rate (GB/s) that is not above 0.
    """
    table = Table.of(log)
    part = limits(start_ns, end_ns)
    frames = [_Gpu(log, table, gpu, line_rate).attribute().frame(*part) for gpu in table.gpus]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=_COLUMNS)


_COLUMNS = ["gpu", "start_ns", "end_ns", "cause", "job", "partition", "worker", "why"]


def idle_by_cause(idle: pd.DataFrame) -> dict[str, int]:
    """Nanoseconds by cause of some rows of `gaps`, most first."""
    length = (idle["end_ns"] - idle["start_ns"]).groupby(idle["cause"].astype(str)).sum()
    return {str(cause): int(ns) for cause, ns in length.sort_values(ascending=False, kind="stable").items()}


class _Gpu:
    """The idle time of one GPU while it is being attributed."""

    def __init__(self, log: Log, table: Table, gpu: int, line_rate: float | None) -> None:
        self.log, self.table, self.gpu = log, table, gpu
        every = table.rows
        here = (every.gpu == gpu) | (every.gpu < 0) & every.among(_OFF_GPU)
        self.rows = every.take(here & (every.end > every.start))
        self.rates = {way: rates.line_rate(log, self.rows, way, line_rate) for way in COPIES}
        self.steps = _steps(self.rows)
        self.alone, self.shared = self._fair_ends()
        kernels = self.kernels = self.rows.of(Phase.KERNEL)
        self.idle = intervals.gaps(kernels.union(), *window(kernels))
        # whose kernel ends a gap: of several the known, then the lowest partition and worker
        order = np.lexsort((kernels.worker, kernels.who, kernels.who < 0, kernels.start))
        ender = order[np.searchsorted(kernels.start[order], self.idle.end, side="left")]
        self.ender, none = kernels.who[ender], np.full(len(ender), -1)
        worker = kernels.worker[ender].astype(np.int64)
        self.pieces = Pieces(*self.idle, np.arange(len(ender)), self.ender, worker, none, none, none, none)

    def _fair_ends(self) -> tuple[np.ndarray, np.ndarray]:
        """When each copy would have ended at line rate, alone and beside the bytes that others moved meanwhile."""
        steps = self.steps
        alone, shared = steps.start.copy(), steps.start.copy()
        for way in COPIES:
            mine = steps.mask(way)
            strangers = self.rows.take(self.rows.among([way]) & (self.rows.who < 0))
            rows = [
                np.concatenate((getattr(steps, name)[mine], getattr(strangers, name)))
                for name in ("start", "end", "bytes")
            ]
            size = steps.bytes[mine]
            beside = intervals.amount_before(steps.end[mine], *rows)
            beside -= intervals.amount_before(steps.start[mine], *rows) + size
            alone[mine] += self.rates[way].ns(size)
            shared[mine] += self.rates[way].ns(size + np.where(beside < 1, 0, beside))  # less than a byte is rounding
        return alone, shared

    def cut(self, *edges: np.ndarray) -> None:
        """Divide the pieces at those of these instants that lie within one."""
        pieces, at = self.pieces, np.concatenate(edges)
        holder = np.minimum(np.searchsorted(pieces.end, at, side="right"), len(pieces.end) - 1)
        inside = (pieces.start[holder] < at) & (at < pieces.end[holder])
        start = np.sort(np.concatenate((pieces.start, at[inside])))
        start = start[np.append(True, start[1:] > start[:-1])]
        source = np.searchsorted(pieces.end, start, side="right")
        end = np.minimum(np.append(start[1:], NEVER), pieces.end[source])
        self.pieces = Pieces(*(column[source] for column in pieces))._replace(start=start, end=end)

    def claim(
        self,
        which: np.ndarray,
        cause: GapCause,
        reason: Reason,
        step: np.ndarray | int = -1,
        other: np.ndarray | int = -1,
    ) -> None:
        """Give a cause to those of these pieces that have none."""
        mine = np.flatnonzero(which & (self.pieces.cause < 0))
        values = _CAUSES.index(cause), _REASONS.index(reason), step, other
        for column, value in zip(self.pieces[-4:], values, strict=True):
            column[mine] = np.broadcast_to(value, len(which))[mine]

    def during(self, group: np.ndarray, other: Owned, asked: np.ndarray | bool = True) -> np.ndarray:
        """The row behind what each piece's group did throughout it, of pieces without a cause; -1 for nothing."""
        found = np.full(len(group), -1)
        mine = np.flatnonzero(asked & (group >= 0) & (self.pieces.cause < 0))
        start = self.pieces.start[mine]
        at = intervals.last_begun(group[mine], start, other)
        found[mine] = np.where(_at(other.end, at, -NEVER) > start, _at(other.row, at), -1)
        return found

    def attribute(self) -> _Gpu:
        """Apply the rules in order."""
        if len(self.pieces.start):
            copies = self.steps.mask(*COPIES)
            self.cut(self.steps.start, self.steps.end, self.alone[copies], self.shared[copies])
            self._before_pickup()
            self._waiting_for_the_lock()
            self._own_stages()
            self._behind_another_copy()
            self._without_partition()
            self._left_over()
        return self

    def _before_pickup(self) -> None:
        """Rules 1 and 2. Without rows of synthesis or pick-up only a worker that is seen busy explains a stretch."""
        rows, steps, count = self.rows, self.steps, len(self.table.partitions) + 1  # the last one: not known
        queue, ready = rows.of(Phase.QUEUE), rows.of(Phase.SYNTHESIS).last(count)
        ready = np.where(ready > -NEVER, ready, queue.first(count))
        ready = np.where(ready < NEVER, ready, -NEVER)
        on_worker = rows.among(ON_WORKER) & (rows.worker >= 0) & (rows.who >= 0)
        taken = queue.last(count)
        begun = rows.take(on_worker & ~rows.among([Phase.KERNEL])).first(count)
        taken = np.where(taken > -NEVER, taken, begun)
        certain = (ready > -NEVER) & (taken < NEVER)  # a kernel alone does not show when its partition was picked up
        taken = np.where(taken < NEVER, taken, self.kernels.take(self.kernels.worker >= 0).first(count))
        busy = rows.take(on_worker & (not certain[self.pieces.who].all()))  # asked for only then
        self.cut(ready, taken, busy.start, busy.end)

        start, who, worker = self.pieces.start, self.pieces.who, self.pieces.worker
        early = steps.mask(Phase.ALLOC) & ((steps.kind == EARLY) | (steps.start < ready[steps.who]))
        self.claim(self.during(who, steps.owned(early)) >= 0, GapCause.ALLOCATION, Reason.BUFFER)
        self.claim(start < ready[who], GapCause.SYNTHESIS_STARVED, Reason.SYNTHESIS)
        waiting = (who >= 0) & (start < taken[who])
        finishing = steps.mask(Phase.FINISH) & (steps.worker >= 0)
        finish = self.during(worker, steps.owned(finishing, steps.worker), waiting)
        self.claim(finish >= 0, GapCause.CPU_FINISH, Reason.FINISH, other=_at(steps.who, finish))
        self.claim(waiting & certain[who], GapCause.WORKERS_BUSY, Reason.QUEUED)
        row = self.during(worker, intervals.latest(busy.worker, busy.start, busy.end), waiting)
        self.claim(row >= 0, GapCause.WORKERS_BUSY, Reason.BUSY, other=_at(busy.who, row))

    def _waiting_for_the_lock(self) -> None:
        """Rule 3: what the holder does while the partition waits."""
        steps, who = self.steps, self.pieces.who
        waits = self.during(who, steps.owned(steps.mask(Phase.LOCK_WAIT))) >= 0
        holder = self.during(np.zeros_like(who), steps.owned(steps.mask(Phase.LOCK_HOLD), 0), waits)
        other = _at(steps.who, holder)
        held = (holder >= 0) & (other != who)
        self._locked(self.during(other, steps.timeline, held), Reason.LOCK, other)
        self.claim(held, GapCause.LOCKED_OTHER, Reason.LOCK, other=other)
        self.claim(waits, GapCause.LOCKED_OTHER, Reason.NOBODY)

    def _locked(self, step: np.ndarray, reason: Reason, other: np.ndarray | int = -1) -> None:
        """The lock over a CPU stage, over a copy within its line-rate time, over a copy beyond it."""
        copies, fair = self._copies(step), self.pieces.start < _at(self.alone, step)
        sized = copies & (_at(self.steps.bytes, step) > 0)
        self.claim((step >= 0) & ~copies, GapCause.LOCKED_CPU, reason, step, other)
        self.claim(sized & fair, GapCause.LOCKED_TRANSFER, reason, step, other)
        self.claim(sized & ~fair, GapCause.LOCKED_SLOW_TRANSFER, reason, step, other)

    def _copies(self, step: np.ndarray) -> np.ndarray:
        return np.isin(_at(self.steps.phase, step), [CODE[way] for way in COPIES])

    def _own_stages(self) -> None:
        """Rules 4 to 6: inside its own hold as far as the wait for it cost time, else the stage itself."""
        steps, idle = self.steps, self.idle
        # rule 4: past the moment at which everything before the kernel would have been over without the wait
        holds, waits = (steps.owned(steps.mask(phase)) for phase in (Phase.LOCK_HOLD, Phase.LOCK_WAIT))
        again = np.append(False, holds.group[1:] == holds.group[:-1])[: len(holds.group)]
        since = np.where(again, np.roll(holds.end, 1), -NEVER // 2)
        waited = np.zeros(len(steps.who), np.int64)
        waited[holds.row] = intervals.overlap(since, holds.start, waits, holds.group)
        last = intervals.last_begun(self.ender, idle.end - 1, steps.timeline)
        over = np.where(last >= 0, np.minimum(_at(steps.timeline.end, last), idle.end), idle.end)
        hold = self.during(self.pieces.who, holds)
        self.cut((over[self.pieces.gap] - _at(waited, hold, 0))[hold >= 0])

        pieces = self.pieces
        step, hold = self.during(pieces.who, steps.timeline), self.during(pieces.who, holds)
        step[_at(steps.phase, step) == CODE[Phase.FINISH]] = -1
        moment = over[pieces.gap] - _at(waited, hold, 0)
        self._locked(np.where((hold >= 0) & (pieces.start >= moment), step, -1), Reason.OWN_HOLD)
        phase = _at(steps.phase, step)
        self.claim(phase == CODE[Phase.PREP], GapCause.CPU_PREP, Reason.STAGE, step)
        self.claim(phase == CODE[Phase.ALLOC], GapCause.ALLOCATION, Reason.STAGE, step)
        self.claim(phase == CODE[Phase.STAGE], GapCause.STAGING, Reason.STAGE, step)
        copy = self._copies(step) & (_at(steps.bytes, step) > 0)
        self.claim(copy & (pieces.start < _at(self.alone, step)), GapCause.TRANSFER, Reason.STAGE, step)
        self.claim(copy & (pieces.start < _at(self.shared, step)), GapCause.LINK_CONTENTION, Reason.SHARED, step)
        self.claim(copy, GapCause.SLOW_TRANSFER, Reason.STAGE, step)

    def _behind_another_copy(self) -> None:
        """Rule 7: on CUDA a pageable copy holds the driver's lock, so that another worker's next call stands still."""
        if self.log.kind not in ("cuda", "foreign"):
            return
        steps = self.steps
        pageable = steps.mask(Phase.H2D) & (steps.kind == KIND[Memory.PAGEABLE])
        life = steps.owned(np.ones(len(steps.who), bool))
        until = np.append(life.start[1:], NEVER)
        until[:-1][life.group[1:] != life.group[:-1]] = NEVER
        still = pageable[life.row] & (until > life.end)
        pauses = Owned(life.group[still], life.end[still], until[still], life.row[still])

        pieces = self.pieces
        paused = self.during(pieces.who, pauses) >= 0
        step = self.during(np.zeros_like(pieces.who), steps.owned(pageable & (steps.bytes > 0), 0), paused)
        stranger = (step >= 0) & (_at(steps.worker, step) != pieces.worker)
        fair, other = pieces.start < _at(self.alone, step), _at(steps.who, step)
        self.claim(stranger & fair, GapCause.LINK_CONTENTION, Reason.BEHIND, step, other)
        self.claim(stranger, GapCause.SLOW_TRANSFER, Reason.BEHIND, step, other)

    def _without_partition(self) -> None:
        """Foreign logs: copies in flight by memory kind, host waits, launch latency, the device's own memory work."""
        rows, frame = self.rows, self.log.frame
        if (self.pieces.who >= 0).all():
            return
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
            self.cut(*found)
            within = intervals.overlap(self.pieces.start, self.pieces.end, found) > 0
            self.claim((self.pieces.who < 0) & within, cause, reason)

    def _left_over(self) -> None:
        """Rule 8: between kernels of one partition, or short; what is still left cannot be told."""
        pieces, first = self.pieces, self.kernels.first(len(self.table.partitions) + 1)
        free = pieces.cause < 0
        stretches = intervals.union(pieces.start[free], pieces.end[free])
        at = np.searchsorted(stretches.end, pieces.start, side="right")
        start, end = (_at(edges, np.where(free, at, -1)) for edges in stretches)
        between = (pieces.who >= 0) & (first[pieces.who] < start)
        self.claim(between, GapCause.LAUNCH_OR_SYNC, Reason.BETWEEN)
        self.claim(end - start <= SHORT_NS, GapCause.LAUNCH_OR_SYNC, Reason.SHORT)
        self.claim(pieces.who >= 0, GapCause.UNATTRIBUTED, Reason.SILENT)
        self.claim(free, GapCause.UNATTRIBUTED, Reason.STRANGER)

    def frame(self, low: int, high: int) -> pd.DataFrame:
        """The pieces as rows in order of time, neighbours of one meaning joined, cut to [low, high)."""
        pieces = np.array(self.pieces, np.int64)
        fresh = np.ones(pieces.shape[1], bool)
        fresh[1:] = (pieces[0, 1:] != pieces[1, :-1]) | (pieces[2:, 1:] != pieces[2:, :-1]).any(axis=0)
        ends = pieces[1, np.append(fresh[1:], True)[: len(fresh)]]
        pieces = pieces[:, fresh]
        pieces[0], pieces[1] = np.maximum(pieces[0], low), np.minimum(ends, high)
        piece = Pieces(*pieces[:, pieces[0] < pieces[1]])
        partitions = self.table.partitions
        jobs = partitions["job"].cat
        names = pd.Index(["", *(name for name in jobs.categories if name)], dtype="str")
        job = np.append(names.get_indexer(jobs.categories)[jobs.codes], 0).astype(np.int32)
        numbers = partitions["partition"].to_numpy()
        causes = pd.Index([str(cause) for cause in _CAUSES], dtype="str")
        return pd.DataFrame(
            {
                "gpu": np.full(len(piece.start), self.gpu, np.int16),
                "start_ns": piece.start,
                "end_ns": piece.end,
                "cause": pd.Categorical.from_codes(piece.cause, causes),
                "job": pd.Categorical.from_codes(job[piece.who], names),
                "partition": np.append(numbers, -1)[piece.who].astype(np.int32),
                "worker": piece.worker.astype(np.int16),
                "why": sentences(piece, self.steps, numbers, self.rates),
            }
        )


def _at(values: np.ndarray, index: np.ndarray, none: int = -1) -> np.ndarray:
    """The values at these places; `none` where the place is -1."""
    return np.append(values, none)[index]


def _steps(rows: Rows) -> Steps:
    """The merged rows of the partitions."""
    mine = rows.take(rows.among(_STEPS) & (rows.who >= 0))
    early = mine.among([Phase.ALLOC]) & (mine.worker < 0)
    kind = np.where(mine.among(COPIES), mine.memory, np.where(early, EARLY, 0))
    merged = intervals.merge((mine.who * len(CODE) + mine.phase) * len(KIND) + kind, mine.start, mine.end, MERGE_NS - 1)
    who, rest = np.divmod(merged.group, len(CODE) * len(KIND))
    phase, kind = np.divmod(rest, len(KIND))
    worker = np.full(len(who), -1, np.int64)
    np.maximum.at(worker, merged.member, mine.worker)
    return Steps(who, phase, kind, worker, merged.start, merged.end, merged.total(mine.bytes))
