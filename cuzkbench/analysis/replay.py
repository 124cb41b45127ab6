"""A log's own stages as the simulator's input, and what a simulation of them comes to: for theories and what-if.

A stage's duration runs from the end of the stage before it (or from the lock's or the bus's grant) to the end of its
own rows, so that latency between rows stays in the replay. The bus serves one copy at a time: a copy's time on it
begins when the copy before it ended, if that was later than its own turn; two copies that are marked as over at once
share their time by size. On CUDA a copy from heap memory holds the driver's lock: what a caller waits for that while
another copies is no time of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd

from cuzkbench.analysis import intervals
from cuzkbench.analysis.metrics import metrics, partitions
from cuzkbench.analysis.rates import LineRate, line_rate
from cuzkbench.analysis.rows import KIND, Rows, Table, once
from cuzkbench.costs import Work
from cuzkbench.events import Lane, Memory, Phase
from cuzkbench.logs.log import Log
from cuzkbench.plan import RunPlan
from cuzkbench.simulate import Shape, Span, simulate_core
from cuzkbench.stages import MEMORIES, Stage, stages

TOLERANCE = 0.05  # a replay that misses the log's own cadence by more cannot be trusted with a change
MOST_COPIES = 8  # of one upload that are kept apart
MOST_PARTITIONS = 1000  # of one log that are replayed, 0.1 to 0.3 s each time; longer logs repeat themselves
NEVER = -1


class CannotReplay(ValueError):
    """Why a log cannot be replayed: what it lacks, or that its replay goes another way."""


class Copy(NamedTuple):
    """One copy of an upload: its time on the bus, its size, and where it came from."""

    ns: int
    bytes: int
    memory: Memory


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
            raise CannotReplay(f"the replay of the log's own stages misses its cadence by {missed:+.1%}")
        return self.run()

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
    warmup = (
        {row[2] for row in reached[:warm]}
        if isinstance(warm, int)
        else {k for k, is_warm in enumerate(warm) if is_warm}
    )
    window, busy, gaps = 0, 0.0, []
    for gpu in {row[3] for row in reached}:
        mine = [row[:3] for row in reached if row[3] == gpu]
        measured = [row for row in mine if row[2] not in warmup]
        if measured:
            first, final = measured[0][0], max(end for _, end, _ in mine)
            window += final - first
            busy += sum(
                work.busy_ns[k] * max(0, end - max(begin, first)) / max(1, end - begin) for begin, end, k in mine
            )
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
    proofs = proofs[proofs["kernel_last_ns"].notna() & proofs["completion_ns"].notna()]
    proofs = proofs[proofs["completion_ns"] <= (2**62 if end_ns is None else end_ns)]
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

    life = _Life(table.rows, proofs)
    plan = _plan(log)
    lock, memory = (plan.lock, plan.memory) if plan else _policies(life)
    shared = log.kind in ("emulated", "cuda")  # a bus that takes turns copy by copy
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
    shape = _shape(log, plan, listed, proofs, table.rows.of(Phase.SYNTHESIS))
    met = interleaved is not None
    shape = dataclasses.replace(shape, stages=listed)
    run = Replay(
        dataclasses.replace(shape, interleaved=interleaved if met else shared),
        work,
        warmup[order].tolist(),
        int(np.flatnonzero(warmup[np.argsort(life.kernels[0], kind="stable")]).max(initial=-1)) + 1,
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


class _Life:
    """When each partition's phases first started and last ended: int64, NEVER where it has no such rows."""

    def __init__(self, rows: Rows, proofs: pd.DataFrame) -> None:
        place = np.full(max(int(rows.who.max(initial=0)), int(proofs.index.max())) + 1, NEVER)
        place[proofs.index] = np.arange(len(proofs))
        self.rows = rows.take((rows.who >= 0) & (place[rows.who] != NEVER))
        self.who, self.count = place[self.rows.who], len(proofs)
        self.gpu, self.worker = (proofs[name].to_numpy(np.int64) for name in ("gpu", "worker"))
        self.picked = proofs["pickup_ns"].to_numpy(np.int64)
        self.kernels = tuple(proofs[name].to_numpy(np.int64) for name in ("kernel_first_ns", "kernel_last_ns"))
        self.on_worker = self.rows.worker >= 0
        self.hold = self.first(Phase.LOCK_HOLD), self.last(Phase.LOCK_HOLD)

    def first(self, phase: Phase, where: np.ndarray | bool = True) -> np.ndarray:
        """Earliest start of a phase."""
        chosen = self.rows.among([phase]) & where
        out = np.full(self.count, 2**62)
        np.minimum.at(out, self.who[chosen], self.rows.start[chosen])
        return np.where(out == 2**62, NEVER, out)

    def last(self, phase: Phase, where: np.ndarray | bool = True) -> np.ndarray:
        """Latest end of a phase."""
        chosen = self.rows.among([phase]) & where
        out = np.full(self.count, NEVER)
        np.maximum.at(out, self.who[chosen], self.rows.end[chosen])
        return out

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
        copies, out = self.rows.of(Phase.H2D), np.zeros(self.count, np.int64)
        for number in np.unique(self.gpu):
            mine = self.gpu == number
            out[mine] = intervals.overlap(start[mine], end[mine], copies.take(copies.gpu == number).union())
        return out

    def _left_by(self, instants: np.ndarray, gpu: np.ndarray, end: np.ndarray) -> np.ndarray:
        """When something of each partition's GPU was last left before an instant, of those ends."""
        out = np.full(self.count, NEVER)
        for number in np.unique(self.gpu):
            mine = self.gpu == number
            left = np.sort(np.append(end[gpu == number], NEVER))
            out[mine] = left[np.maximum(0, np.searchsorted(left, instants[mine]) - 1)]
        return out

    def _copies(
        self, turn: np.ndarray, whole: bool, rate: LineRate, late: np.ndarray | None
    ) -> tuple[list[list[Copy]], bool | None]:
        """Each partition's copies from its turn on; `whole` joins those of one upload.

        `late`: takes what passed between a copy's turn and its start; None leaves that in the copy.
        """
        rows = self.rows.take(self.rows.among([Phase.H2D]) & self.on_worker)
        who = self.who[self.rows.among([Phase.H2D]) & self.on_worker]
        start, end, size, kind, gpu = rows.start, rows.end, rows.bytes, rows.memory, rows.gpu
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


def _policies(life: _Life) -> tuple[str, str]:
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
