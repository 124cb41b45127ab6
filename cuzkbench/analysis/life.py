"""How long each stage of each partition took, from its rows: what a replay is fed with.

A stage's duration runs from the end of the stage before it (or from the lock's or the bus's grant) to the end of its
own rows, so that latency between rows stays in the replay. The bus serves one copy at a time: a copy's time on it
begins when the copy before it ended, if that was later than its own turn; two copies that are marked as over at once
share their time by size. On CUDA a copy from heap memory holds the driver's lock: what a caller waits for that while
another copies is no time of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd

from cuzkbench.analysis import intervals
from cuzkbench.analysis.rates import LineRate
from cuzkbench.analysis.rows import NEVER as LATER
from cuzkbench.analysis.rows import Rows
from cuzkbench.events import Lane, Memory, Phase
from cuzkbench.stages import Stage

MOST_COPIES = 8  # of one upload that are kept apart
NEVER = -1


class Copy(NamedTuple):
    """One copy of an upload: its time on the bus, its size, and where it came from."""

    ns: int
    bytes: int
    memory: Memory


class Life:
    """When each partition's phases first started and last ended: int64, NEVER where it has no such rows."""

    def __init__(self, rows: Rows, proofs: pd.DataFrame) -> None:
        place = np.full(max(int(rows.who.max(initial=0)), int(proofs.index.max())) + 1, NEVER)
        place[proofs.index] = np.arange(len(proofs))
        rows = rows.take((rows.who >= 0) & (place[rows.who] != NEVER))
        self.rows, self.count = replace(rows, who=place[rows.who]), len(proofs)
        self.who = self.rows.who
        self.gpu, self.worker = (proofs[name].to_numpy(np.int64) for name in ("gpu", "worker"))
        self.picked = proofs["pickup_ns"].to_numpy(np.int64)
        self.kernels = tuple(proofs[name].to_numpy(np.int64) for name in ("kernel_first_ns", "kernel_last_ns"))
        self.on_worker = self.rows.worker >= 0
        self.hold = self.first(Phase.LOCK_HOLD), self.last(Phase.LOCK_HOLD)

    def first(self, phase: Phase) -> np.ndarray:
        """Earliest start of a phase."""
        out = self.rows.of(phase).first(self.count)
        return np.where(out == LATER, NEVER, out)

    def last(self, phase: Phase, where: np.ndarray | bool = True) -> np.ndarray:
        """Latest end of a phase."""
        return np.maximum(self.rows.take(self.rows.among([phase]) & where).last(self.count), NEVER)

    def walk(
        self, listed: Sequence[Stage], rate: LineRate, settles: bool
    ) -> tuple[dict[str, np.ndarray], np.ndarray, list[list[Copy]], bool | None]:
        """Durations by stage, the kernels' lead, the copies, and whether uploads interleave (None: none met)."""
        asked = self.first(Phase.LOCK_WAIT)
        asked = np.where(asked == NEVER, self.hold[0], asked)
        locked = [stage.name for stage in listed if stage.locked]
        durations: dict[str, np.ndarray] = {}
        now, lead = self.picked, np.zeros(self.count, np.int64)
        copies: list[list[Copy]] = []
        interleaved: bool | None = None
        engine = [self.kernels[1]]  # when it was left
        if any(stage.phase is Phase.ALLOC and stage.lane is Lane.COMPUTE for stage in listed):
            engine.append(self.last(Phase.ALLOC, self.on_worker & (self.rows.end > self.kernels[0][self.who])))
        late = np.zeros(self.count, np.int64)
        for stage in listed:
            if stage.name == locked[0]:
                if durations:  # before the lock is asked for
                    late += np.where(asked == NEVER, 0, np.maximum(0, asked - now))
                    if settles and copies:
                        late -= self._beside_copies(now, np.maximum(now, asked))
                now = np.maximum(now, self.hold[0])
            if stage.phase is Phase.H2D:
                copies, interleaved = self._copies(
                    now, stage.staged, rate, late if settles and not stage.locked else None
                )
                now = np.maximum(now, self.last(Phase.H2D, self.on_worker))
                continue
            where = self.on_worker.copy()
            if stage.phase is Phase.ALLOC:
                early = self.rows.end <= self.kernels[0][self.who]
                where &= early if stage.name == "register" else ~early
            elif stage.phase is Phase.PREP and not stage.locked:  # what it does inside the hold is not this stage's
                where &= (self.hold[0][self.who] == NEVER) | (self.rows.start < self.hold[0][self.who])
            begin = now
            if stage.lane is Lane.COMPUTE:
                ends = self.kernels[1] if stage.phase is Phase.KERNEL else self.last(stage.phase, where)
                begin = np.maximum(now, self._left_by(ends, np.tile(self.gpu, len(engine)), np.concatenate(engine)))
            if stage.phase is Phase.KERNEL:
                lead = np.maximum(0, self.kernels[0] - begin)
            now = np.maximum(begin, self.last(stage.phase, where))
            if stage.name == locked[-1]:
                now = np.maximum(now, self.hold[1])
            durations[stage.name] = now - begin
        durations["prep"] += late  # latency before a copy or the lock, whatever the stage before
        self.done = now
        return durations, lead, copies, interleaved

    def _beside_copies(self, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """How long copies of the same GPU lasted in those intervals, one for each partition."""
        copies = self.rows.of(Phase.H2D)
        return intervals.overlap(start, end, intervals.merge(copies.gpu, copies.start, copies.end), self.gpu)

    def _left_by(self, instants: np.ndarray, gpu: np.ndarray, end: np.ndarray) -> np.ndarray:
        """When something of each partition's GPU was last left before an instant, of those ends."""
        order = np.lexsort((end, gpu))
        left = intervals.Owned(gpu[order], end[order], end[order], order)
        return np.append(left.end, NEVER)[intervals.last_begun(self.gpu, instants - 1, left)]

    def _copies(
        self, turn: np.ndarray, whole: bool, rate: LineRate, late: np.ndarray | None
    ) -> tuple[list[list[Copy]], bool | None]:
        """Each partition's copies from its turn on; `whole` joins those of one upload.

        `late`: takes what passed between a copy's turn and its start; None leaves that in the copy.
        """
        rows = self.rows.take(self.rows.among([Phase.H2D]) & self.on_worker)
        who, start, end, size, kind, gpu = rows.who, rows.start, rows.end, rows.bytes, rows.memory, rows.gpu
        if whole or np.bincount(who, minlength=1).max() > MOST_COPIES:
            joined, at, which = np.unique(who, return_index=True, return_inverse=True)
            start, end = (limit[joined] for limit in (self.first(Phase.H2D), self.last(Phase.H2D, self.on_worker)))
            size, kind, gpu, who = np.bincount(which, size).astype(np.int64), kind[at], gpu[at], joined
        out: list[list[Copy]] = [[] for _ in range(self.count)]
        bus: dict[int, int] = {}
        own, kinds, turns = turn.tolist(), list(Memory), []
        latest: dict[int, tuple[int, int]] = {}  # by GPU: whose copy was served last, and which of its own
        for i in np.lexsort((who, start, end)).tolist():
            k, g, until = int(who[i]), int(gpu[i]), int(end[i])
            since = max(own[k], bus.get(g, NEVER))
            if late is not None and start[i] > since:
                late[k] += int(start[i]) - since
                since = int(start[i])
            copy = Copy(max(0, until - since), int(size[i]), kinds[kind[i]])
            other, place = latest.get(g, (k, 0))
            if other != k and bus[g] > start[i] and 2 * copy.ns < rate.ns(copy.bytes):
                # faster than the bus: both were marked as over when the second was, so they share that time by size
                before = out[other][place]
                total, both = before.ns + copy.ns, before.bytes + copy.bytes
                out[other][place] = before._replace(ns=total * before.bytes // both)
                copy = copy._replace(ns=total - total * before.bytes // both)
            out[k].append(copy)
            latest[g] = k, len(out[k]) - 1
            own[k] = bus[g] = until
            turns.append((g, k))
        turns.sort(key=lambda one: one[0])  # by GPU, then by time
        over = self.last(Phase.H2D, self.on_worker)
        met = any(
            intervals.deepest(turn[mine], over[mine]) > 1
            for g in bus
            if (mine := (self.gpu == g) & (over > turn)).any()
        )
        changes = sum(one != other for one, other in pairwise(turns)) + 1
        return out, (changes > len(set(turns))) if met else None

    def free_workers(self, durations: dict[str, np.ndarray]) -> np.ndarray:
        """Let FINISH last until its worker could take the next partition; by how much the proof was done later.

        A worker that had a partition waiting and took it late was busy meanwhile; one that took the next before FINISH
        ended left it to another thread.
        """
        ready, free = self.last(Phase.SYNTHESIS), self.done.copy()
        self.woken = np.where(ready == NEVER, 0, np.maximum(0, self.picked - ready))  # by an idle worker
        order = np.lexsort((self.picked, self.worker, self.gpu))
        for one, following in pairwise(order):
            if (self.gpu[one], self.worker[one]) == (self.gpu[following], self.worker[following]):
                waited = ready[following] <= self.done[one]
                free[one] = self.picked[following] if waited else min(free[one], self.picked[following])
                self.woken[following] *= not waited
        free = np.maximum(free, self.done - durations["finish"])
        tail = self.done - free
        durations["finish"] -= tail
        return tail
