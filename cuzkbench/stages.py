"""One partition's life on a GPU worker as data: the stages in order, what each occupies, what the lock covers.

The real worker and the simulator both execute this list, so they cannot disagree about what a policy means.
"""

from __future__ import annotations

from dataclasses import dataclass

from cuzkbench.events import Lane, Memory, Phase

LOCKS: dict[str, tuple[Phase, Phase]] = {
    "coarse": (Phase.PREP, Phase.FINISH),
    "device": (Phase.H2D, Phase.D2H),
    "narrow": (Phase.KERNEL, Phase.KERNEL),
}
MEMORIES: dict[str, Memory] = {
    "pageable": Memory.PAGEABLE,
    "pinned": Memory.PINNED,
    "registered": Memory.REGISTERED,
    "staged": Memory.STAGED,
}


@dataclass(frozen=True)
class Stage:
    """One step of a partition: its phase, the lane that it occupies, and whether the GPU lock covers it."""

    phase: Phase
    lane: Lane
    name: str
    locked: bool
    staged: bool = False  # an upload that threads feed through a pinned ring: makes STAGE rows beside its H2D rows


_PREP = (Phase.PREP, Lane.CPU, "prep")
_UPLOAD = (Phase.H2D, Lane.COPY_H2D, "upload")
_KERNELS = (Phase.KERNEL, Lane.COMPUTE, "kernels")
_DOWNLOAD = (Phase.D2H, Lane.COPY_D2H, "download")
_FINISH = (Phase.FINISH, Lane.CPU, "finish")
_PLAIN = (_PREP, _UPLOAD, _KERNELS, _DOWNLOAD, _FINISH)
_REGISTERED = (
    _PREP,
    (Phase.ALLOC, Lane.CPU, "register"),
    _UPLOAD,
    _KERNELS,
    _DOWNLOAD,
    (Phase.ALLOC, Lane.CPU, "unregister"),
    _FINISH,
)


def stages(lock: str, memory: str) -> tuple[Stage, ...]:
    """The stages of one partition in order; the locked ones are contiguous. Raises ValueError for an unknown policy."""
    if lock not in LOCKS:
        raise ValueError(f"unknown lock {lock!r}: one of {', '.join(LOCKS)}")
    if memory not in MEMORIES:
        raise ValueError(f"unknown memory {memory!r}: one of {', '.join(MEMORIES)}")
    steps = _REGISTERED if memory == "registered" else _PLAIN
    first, last = LOCKS[lock]
    phases = [phase for phase, _, _ in steps]
    covered = range(phases.index(first), len(phases) - phases[::-1].index(last))
    return tuple(
        Stage(phase, lane, name, index in covered, staged=memory == "staged" and phase is Phase.H2D)
        for index, (phase, lane, name) in enumerate(steps)
    )
