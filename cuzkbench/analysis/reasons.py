"""The sentence beside each stretch of idle time: who waited, for what, and at which rate data came."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from cuzkbench import words
from cuzkbench.analysis.intervals import Owned, latest
from cuzkbench.analysis.rates import LineRate
from cuzkbench.analysis.rows import CODE, STAGES
from cuzkbench.events import Memory, Phase

EARLY = 1  # `kind` of an ALLOC row of a partition that no worker has picked up
MOST_SENTENCES = 20_000  # the longest stretches get a sentence of their own, the rest that of their kind
_PHASES, _MEMORIES = list(Phase), list(Memory)
_DOING = {
    Phase.PREP: "CPU preparation",
    Phase.ALLOC: "registering or allocating a host buffer",
    Phase.STAGE: "copying into pinned memory",
    Phase.FINISH: "CPU finish",
    Phase.H2D: "upload",
    Phase.D2H: "download",
}


class Reason(StrEnum):
    """How a stretch got its cause; the value is its sentence."""

    BUFFER = "{who} waited for a host buffer"
    SYNTHESIS = "{who} was not yet synthesised"
    FINISH = "{who} was ready, but its worker was finishing {other}"
    QUEUED = "{who} was ready, but no worker had picked it up"
    BUSY = "{who} had not begun, its worker was busy with {other}"
    LOCK = "{who} waited for the lock that {other} held over {stage}"
    NOBODY = "{who} waited for the lock, and the log does not show who held it"
    OWN_HOLD = "{who} held the lock over its own stage after waiting for it: {stage}"
    STAGE = "{who}: {stage}"
    SHARED = "{who} shared the bus with other copies: {stage}"
    BEHIND = "{who} stood still after a pageable copy of its own while {other} copied: {stage}"
    BETWEEN = "between two kernels of {who}"
    SHORT = "at most 100 µs without a cause before a kernel of {who}"
    SILENT = "the log does not show what {who} did"
    STRANGER = "no row covers it, and the kernel that ends it names no partition"
    PAGEABLE_COPY = "a copy from or to pageable memory was in flight"
    PINNED_COPY = "a copy from or to pinned memory was in flight"
    UNKNOWN_COPY = "a copy was in flight whose host memory the trace does not name"
    HOST = "a host thread was blocked on the device or on a lock"
    LAUNCHED = "work was launched and had not begun"
    DEVICE_MEMORY = "the device filled or copied its own memory"


@dataclass(frozen=True)
class Steps:
    """Merged rows of the partitions on one GPU, sorted by (who, phase, kind, start); `kind` is the memory of copies."""

    who: np.ndarray
    phase: np.ndarray
    kind: np.ndarray
    worker: np.ndarray
    start: np.ndarray
    end: np.ndarray
    bytes: np.ndarray

    def mask(self, *phases: Phase) -> np.ndarray:
        """Which steps are of some phases."""
        return np.isin(self.phase, [CODE[phase] for phase in phases])

    def owned(self, which: np.ndarray, group: np.ndarray | int | None = None) -> Owned:
        """At each instant of each partition, or of another group, the one of these steps that ends last."""
        chosen = np.flatnonzero(which)
        groups = np.broadcast_to(self.who if group is None else group, len(which))[chosen]
        found = latest(groups, self.start[chosen], self.end[chosen])
        return found._replace(row=chosen[found.row])

    @cached_property
    def timeline(self) -> Owned:
        """Of each partition the stage that counts at each instant."""
        stage = self.mask(*STAGES, Phase.FINISH) & ~((self.phase == CODE[Phase.ALLOC]) & (self.kind == EARLY))
        return self.owned(stage)


class Pieces(NamedTuple):
    """Idle time in order, a piece in one gap: its times, whose kernel ends the gap, and why the GPU waited.

    `cause` and `reason` are places in GapCause and Reason, `step` is the step and `other` the partition that explains
    it; -1 for none.
    """

    start: np.ndarray
    end: np.ndarray
    gap: np.ndarray
    who: np.ndarray
    worker: np.ndarray
    cause: np.ndarray
    reason: np.ndarray
    step: np.ndarray
    other: np.ndarray


def sentences(pieces: Pieces, steps: Steps, partitions: np.ndarray, rates: Mapping[Phase, LineRate]) -> pd.Categorical:
    """One sentence a piece; `partitions` are the partitions' own numbers."""
    templates, unknown = list(Reason), "what the log does not show"
    kind = np.append(steps.phase, -1)[pieces.step]  # of most stretches only the phase is told
    distinct, codes = np.unique(pieces.reason * (len(_PHASES) + 1) + kind + 1, return_inverse=True)
    texts: dict[str, int] = {}
    general = []
    for value in distinct.tolist():
        index, phase = divmod(value, len(_PHASES) + 1)
        stage = _DOING[_PHASES[phase - 1]] if phase else unknown
        text = templates[index].format(who="the next partition", other="another partition", stage=stage)
        general.append(texts.setdefault(text, len(texts)))
    codes = np.array(general, np.int64)[codes]

    numbers = partitions.tolist()

    def name(number: int) -> str:
        return f"partition {numbers[number]}" if number >= 0 else "a partition that the log does not name"

    own = np.argsort(pieces.start - pieces.end, kind="stable")[:MOST_SENTENCES]
    columns = (column[own].tolist() for column in (pieces.reason, pieces.who, pieces.worker, pieces.other))
    for row, stage, reason, who, worker, other in zip(
        own, _stages(pieces.step[own], steps, rates), *columns, strict=True
    ):
        whose = f"{name(who)} (worker {worker})" if who >= 0 and worker >= 0 else name(who)
        text = templates[reason].format(who=whose, other=name(other), stage=stage or unknown)
        codes[row] = texts.setdefault(text, len(texts))
    return pd.Categorical.from_codes(codes, pd.Index(list(texts), dtype="str")).remove_unused_categories()


def _stages(step: np.ndarray, steps: Steps, rates: Mapping[Phase, LineRate]) -> Iterator[str]:
    """What is done in each of these steps, of copies how fast; empty for -1."""
    expected = {
        phase: f"{words.rate(rate.gb_s)} expected{', assumed' if rate.source == 'assumed' else ''}"
        for phase, rate in rates.items()
    }
    columns = (np.append(column, -1)[step].tolist() for column in (steps.phase, steps.kind, steps.bytes))
    length = np.append(steps.end - steps.start, 1)[step].tolist()
    for phase, kind, size, ns in zip(*columns, length, strict=True):
        doing = _DOING[_PHASES[phase]] if phase >= 0 else ""
        if (line := expected.get(_PHASES[phase])) and doing:
            doing = words.spaced(f"{_MEMORIES[kind].lower()} {doing} {words.rate(size / ns)}, {line}")
        yield doing
