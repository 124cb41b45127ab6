"""What names and numbers in Nsight exports mean: copies, memory kinds, lock waits, and our own NVTX ranges.

An own range is called `p3.w1.PREP:prep`, with a job `job-7/p3.w1.PREP:prep`: partition, worker, phase, name.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from cuzkbench.events import Lane, Memory, Phase
from cuzkbench.logs.chrome_kinds import copy_by_name

MEMORIES = ("Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static", "Unknown")
COPIES = (
    "unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP", "HtoD", "DtoH", "DtoD",
)  # fmt: skip
UNIFIED = (11, 12, 13)  # the last three: pages that moved by themselves
LOCK_WAITS = re.compile(  # not unlock and trylock, which do not block
    r"pthread_(?:mutex_|rwlock_|cond_|barrier_)(?:timed|clock)?(?:lock|rdlock|wrlock|wait)|sem_(?:timed|clock)?wait|futex\w*"
)
_VERSION = re.compile(r"_v\d{4,}$")
_OWN = re.compile(r"(?:(?P<job>.+)/)?p(?P<partition>\d{1,9})\.w(?P<worker>\d{1,4}|-1)\.(?P<phase>\w+):(?P<name>.*)")


class Own(NamedTuple):
    """What the name of one of our own NVTX ranges says."""

    job: str = ""
    partition: int = -1
    worker: int = -1
    phase: str = Phase.OTHER
    name: str = ""


def own_range(text: str) -> Own | None:
    """`p3.w1.PREP:prep`, or `job-7/p3.w1.PREP:prep`, in its parts; None for another program's range."""
    found = _OWN.fullmatch(text)
    if found is None or found["phase"] not in Phase.__members__:
        return None
    return Own(found["job"] or "", int(found["partition"]), int(found["worker"]), found["phase"], found["name"])


def bare(name: str) -> str:
    """`cudaMemcpyAsync_v3020` as `cudaMemcpyAsync`; in `cuMemcpyHtoDAsync_v2` the _v2 belongs to the name."""
    return _VERSION.sub("", name)


def copy_of(kind: int, source: int, target: int) -> tuple[str, str, str, str]:
    """Phase, lane, memory and name of a copy by Nsight's numbers, which are not CUPTI's."""
    sides = [MEMORIES[side] if 0 <= side < len(MEMORIES) else "Unknown" for side in (source, target)]
    towards = COPIES[kind] if 0 <= kind < len(COPIES) else "unknown"
    name = f"{'Unified memcpy' if kind in UNIFIED else 'Memcpy'} {towards} ({sides[0]} -> {sides[1]})"
    return (Phase.OTHER, Lane.CPU, Memory.NONE, name) if towards == "HtoH" else (*copy_by_name(name), name)
