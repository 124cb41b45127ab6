"""A log's frame as numpy columns: phases as small ints, partitions as numbers. Where every analysis starts."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd

from cuzkbench.analysis import intervals
from cuzkbench.analysis.intervals import Intervals
from cuzkbench.events import Memory, Phase
from cuzkbench.logs.log import Log

P = ParamSpec("P")
T = TypeVar("T")
CODE: dict[Phase, int] = {phase: code for code, phase in enumerate(Phase)}
KIND: dict[Memory, int] = {memory: code for code, memory in enumerate(Memory)}
NEVER = int(np.iinfo(np.int64).max)
COPIES = (Phase.H2D, Phase.D2H)
OPERATIONS = (Phase.KERNEL, Phase.H2D, Phase.D2H, Phase.D2D, Phase.MEMSET)  # what occupies a device
STAGES = (Phase.PREP, Phase.ALLOC, Phase.STAGE, Phase.H2D, Phase.D2H)  # what a worker does before a kernel
ON_WORKER = (*STAGES, Phase.LOCK_WAIT, Phase.LOCK_HOLD, Phase.KERNEL, Phase.FINISH)


@dataclass(frozen=True)
class Rows:
    """Columns of equal length. `who` numbers (run, job, partition) in order, -1 where the partition is unknown."""

    phase: np.ndarray  # int8, index into Phase
    memory: np.ndarray  # int8, index into Memory
    gpu: np.ndarray
    worker: np.ndarray
    who: np.ndarray  # int64
    start: np.ndarray  # int64
    end: np.ndarray  # int64
    bytes: np.ndarray  # int64
    warmup: np.ndarray

    def take(self, mask: np.ndarray) -> Rows:
        """The rows where the mask holds."""
        at = np.flatnonzero(mask)
        return Rows(*(getattr(self, field.name)[at] for field in fields(self)))

    def of(self, *phases: Phase) -> Rows:
        """The rows of some phases."""
        return self.take(self.among(phases))

    def among(self, phases: Iterable[Phase]) -> np.ndarray:
        """Mask of some phases."""
        wanted = np.zeros(len(CODE), bool)
        wanted[[CODE[phase] for phase in phases]] = True
        return wanted[self.phase]

    def union(self, *phases: Phase) -> Intervals:
        """The instants that the rows of some phases cover, of all rows without a phase."""
        rows = self.of(*phases) if phases else self
        return intervals.union(rows.start, rows.end)

    def first(self, count: int) -> np.ndarray:
        """The earliest start of the rows of each of the first `count` partitions, NEVER without."""
        out = np.full(count, NEVER)
        np.minimum.at(out, self.who[self.who >= 0], self.start[self.who >= 0])
        return out

    def last(self, count: int) -> np.ndarray:
        """The latest end of the rows of each of the first `count` partitions, -NEVER without."""
        out = np.full(count, -NEVER)
        np.maximum.at(out, self.who[self.who >= 0], self.end[self.who >= 0])
        return out

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class Table:
    """A log's rows, and who its partitions are: a frame of run, job, partition by number."""

    rows: Rows
    partitions: pd.DataFrame
    gpus: tuple[int, ...]  # that did or held anything; -1 if a foreign log has operations on an unknown one

    @classmethod
    def of(cls, log: Log) -> Table:
        """The columns of a log, not copied where they already fit."""
        frame = log.frame
        run, job = frame["run"].cat, frame["job"].cat
        partition = frame["partition"].to_numpy()
        known = partition >= 0
        names = len(job.categories)
        key = (run.codes.to_numpy(np.int64) * names + job.codes.to_numpy()) << 31 | np.where(known, partition, 0)
        number, seen = pd.factorize(key[known], sort=True)
        who = np.full(len(frame), -1, np.int64)
        who[known] = number
        named = {
            "run": pd.Categorical.from_codes((seen >> 31) // names, run.categories),
            "job": pd.Categorical.from_codes((seen >> 31) % names, job.categories),
            "partition": (seen & 0x7FFFFFFF).astype(np.int32),
        }
        rows = Rows(
            frame["phase"].cat.codes.to_numpy(),
            frame["memory"].cat.codes.to_numpy(),
            frame["gpu"].to_numpy(),
            frame["worker"].to_numpy(),
            who,
            *(frame[name].to_numpy() for name in ("start_ns", "end_ns", "bytes", "warmup")),
        )
        active = rows.among(OPERATIONS) | ((rows.gpu >= 0) & rows.among(ON_WORKER))
        return cls(rows, pd.DataFrame(named), tuple(int(gpu) for gpu in np.unique(rows.gpu[active])))


_ANSWERS: WeakKeyDictionary[Log, dict[Any, Any]] = WeakKeyDictionary()


def once(answer: Callable[Concatenate[Log, P], T]) -> Callable[Concatenate[Log, P], T]:
    """The same function, computed once for each log and arguments: a Log never changes.

    Every caller gets a frame of its own, which pandas copies when it is written to.
    """

    signature = inspect.signature(answer)

    @functools.wraps(answer)
    def known(log: Log, *args: P.args, **kwargs: P.kwargs) -> T:
        answers = _ANSWERS.setdefault(log, {})
        bound = signature.bind(log, *args, **kwargs)
        bound.apply_defaults()
        key = answer, *bound.args[1:]
        if key not in answers:
            answers[key] = answer(log, *args, **kwargs)
        found: Any = answers[key]
        own: Any = found.copy(deep=False) if isinstance(found, pd.DataFrame) else found
        return own

    return known


def limits(start_ns: int | None, end_ns: int | None) -> tuple[int, int]:
    """A part of the run as two instants."""
    return -NEVER if start_ns is None else start_ns, NEVER if end_ns is None else end_ns


def window(rows: Rows, low: int = -NEVER, high: int = NEVER) -> tuple[int, int]:
    """W of one GPU's rows: from the first to the last kernel that is no warm-up, cut to a part; (0, 0) without."""
    kernels = rows.of(Phase.KERNEL)
    kernels = kernels.take(~kernels.warmup & (kernels.end > kernels.start))
    start, end = max(int(kernels.start.min(initial=NEVER)), low), min(int(kernels.end.max(initial=-NEVER)), high)
    return (start, end) if end > start else (0, 0)
