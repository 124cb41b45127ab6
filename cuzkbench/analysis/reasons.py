"""The sentence beside each stretch of idle time: who waited, for what, and at which rate data came."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import pandas as pd

from cuzkbench import words
from cuzkbench.analysis.intervals import Merged, Owned
from cuzkbench.analysis.rates import LineRate
from cuzkbench.analysis.rows import CODE
from cuzkbench.events import Memory, Phase

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


class Steps(NamedTuple):
    """Merged rows of the partitions on one GPU, sorted by (who, phase, kind, start); `kind` is the memory of copies."""

    who: np.ndarray
    phase: np.ndarray
    kind: np.ndarray
    worker: np.ndarray
    start: np.ndarray
    end: np.ndarray
    bytes: np.ndarray
    timeline: Owned  # of each partition the stage that counts at each instant; `row` indexes these steps

    def mask(self, phase: Phase) -> np.ndarray:
        """Which steps are of a phase."""
        return self.phase == CODE[phase]

    def of(self, phase: Phase) -> Merged:
        """The steps of a phase that has one kind, as intervals of their partitions."""
        mine = self.mask(phase)
        return Merged(self.who[mine], self.start[mine], self.end[mine], np.flatnonzero(mine))


class Causes(NamedTuple):
    """What the sentences are made of, a row a stretch: indices into Reason, partitions and steps, -1 for none."""

    reason: np.ndarray
    who: np.ndarray
    worker: np.ndarray
    step: np.ndarray
    other: np.ndarray
    length: np.ndarray


def sentences(causes: Causes, steps: Steps, partitions: np.ndarray, rates: Mapping[Phase, LineRate]) -> pd.Categorical:
    """One sentence a stretch; `partitions` are the partitions' own numbers."""
    templates = list(Reason)
    reason, who, worker, step, other, length = causes
    own = np.argsort(-length, kind="stable")[:MOST_SENTENCES]
    kind = np.where(step >= 0, np.append(steps.phase, 0)[step], -1)  # of the rest only the phase is told
    key = reason * (len(_PHASES) + 1) + kind + 1
    distinct, codes = np.unique(key, return_inverse=True)
    texts: dict[str, int] = {}
    general = []
    for value in distinct.tolist():
        index, phase = divmod(value, len(_PHASES) + 1)
        stage = _DOING[_PHASES[phase - 1]] if phase else "what the log does not show"
        text = templates[index].format(who="the next partition", other="another partition", stage=stage)
        general.append(texts.setdefault(text, len(texts)))
    codes = np.array(general, np.int64)[codes]

    def name(number: int, worker: int = -1) -> str:
        if number < 0:
            return "a partition that the log does not name"
        return f"partition {partitions[number]}" + (f" (worker {worker})" if worker >= 0 else "")

    for row in own.tolist():
        text = templates[reason[row]].format(
            who=name(who[row], worker[row]), other=name(other[row]), stage=_stage(int(step[row]), steps, rates)
        )
        codes[row] = texts.setdefault(text, len(texts))
    return pd.Categorical.from_codes(codes, pd.Index(list(texts), dtype="str")).remove_unused_categories()


def _stage(step: int, steps: Steps, rates: Mapping[Phase, LineRate]) -> str:
    if step < 0:
        return "what the log does not show"
    phase = _PHASES[steps.phase[step]]
    doing = _DOING[phase]
    if phase not in rates:
        return doing
    rate = rates[phase]
    found = steps.bytes[step] / (steps.end[step] - steps.start[step])
    assumed = ", assumed" if rate.source == "assumed" else ""
    memory = _MEMORIES[steps.kind[step]].lower()
    return words.spaced(f"{memory} {doing} {words.rate(found)}, {words.rate(rate.gb_s)} expected{assumed}")
