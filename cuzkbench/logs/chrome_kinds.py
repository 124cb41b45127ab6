"""What one trace event of a category and a name is: category, name -> phase, lane, memory. For `logs/chrome.py`.

The categories are those of PyTorch's profiler (kineto), of its predecessors, and of converters of Nsight files.
"""

from __future__ import annotations

import re
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any, NamedTuple

from cuzkbench.events import Clock, Lane, Memory, Phase
from cuzkbench.logs.validate import LANES

OWN = "cuzkbench"  # the category of what `chrome_export` writes
KERNELS, COPIES, MEMSETS = {"kernel"}, {"gpu_memcpy", "memcpy"}, {"gpu_memset", "memset"}
CALLS = {"cuda_runtime", "cuda_driver", "runtime", "driver", "cuda_api"}
BLOCKING = re.compile(r"(?:cuda|cu|hip)(?:Device|Stream|Event|Ctx)Synchronize|(?:cuda|hip)Memcpy(?:_v\d+)?$")
_UPLOAD, _DOWNLOAD = re.compile(r"HtoD|HtoA|HostToDevice|H2D", re.I), re.compile(r"DtoH|AtoH|DeviceToHost|D2H", re.I)
_WITHIN = re.compile(r"DtoD|PtoP|DtoA|AtoD|AtoA|DeviceToDevice|PeerToPeer|D2D|P2P", re.I)
_MEMORIES = {"pageable": Memory.PAGEABLE, "pinned": Memory.PINNED}
_SCALE = (1000, 100, 10, 1)
_LAST_INTEGER = re.compile(r"(\d{1,18})\D*$", re.ASCII)


class Kind(NamedTuple):
    """What all events of one category and name say; `role` is device, sync, call, host or own."""

    role: str
    category: str
    name: str
    phase: str = Phase.OTHER
    lane: str = Lane.CPU
    memory: str = Memory.NONE
    clock: str = Clock.HOST
    job: str = ""
    warmup: bool = False


def kind_of(category: str, name: str, on_device: bool) -> Kind:
    """What an interval is; `on_device` where its process is named as a device, as converters of Nsight files do."""
    lowered = category.lower()
    if lowered in KERNELS or (lowered == "cuda" and on_device):
        return Kind("device", category, name, Phase.KERNEL, Lane.COMPUTE, clock=Clock.DEVICE)
    if lowered in MEMSETS:
        return Kind("device", category, name, Phase.MEMSET, Lane.COMPUTE, clock=Clock.DEVICE)
    if lowered in COPIES:
        return Kind("device", category, name, *copy_by_name(name), Clock.DEVICE)
    if lowered == "cuda_sync":  # a stream that waits for an event blocks no host thread
        return Kind("sync", category, name, Phase.OTHER if "wait" in name.lower() else Phase.HOST_SYNC)
    role = "call" if lowered in CALLS else "host"
    blocks = role == "call" and BLOCKING.match(name) is not None
    return Kind(role, category, name, Phase.HOST_SYNC if blocks else Phase.OTHER)


def copy_by_name(name: str) -> tuple[Phase, Lane, Memory]:
    """A copy by its name, such as `Memcpy HtoD (Pageable -> Device)`; AMD's say Host: memory unknown."""
    sides = [side.strip().lower() for side in name.partition("(")[2].rstrip(") ").split("->")]
    if _UPLOAD.search(name):
        return Phase.H2D, Lane.COPY_H2D, _MEMORIES.get(sides[0], Memory.UNKNOWN)
    if _DOWNLOAD.search(name):
        return Phase.D2H, Lane.COPY_D2H, _MEMORIES.get(sides[-1], Memory.UNKNOWN)
    within = _WITHIN.search(name)
    return Phase.D2D, Lane.COMPUTE, Memory.NONE if within else Memory.UNKNOWN  # unknown: the direction is not known


def own_kind(name: str, args: dict[str, Any]) -> Kind:
    """The kind of an event that `chrome_export` wrote; raises LookupError or ValueError where somebody changed it."""
    phase, lane, memory, clock = Phase[args["phase"]], Lane[args["lane"]], Memory[args["memory"]], Clock[args["clock"]]
    if LANES.get(phase, lane) != lane or (memory == Memory.NONE and phase in (Phase.H2D, Phase.D2H)):
        raise ValueError("phase, lane and memory do not fit")
    return Kind("own", OWN, name, phase, lane, memory, clock, str(args["job"]), args["warmup"] is True)


def nanoseconds(value: object) -> int | None:
    """Microseconds (integer, or decimal text) as integer nanoseconds, None where it is no number."""
    if type(value) is int:
        return value * 1000
    if not isinstance(value, str):
        return None
    whole, _, part = value.partition(".")
    digits = whole + part
    if len(part) <= 3 and len(digits) < 20 and digits.isdecimal():  # nearly all: twice as fast as a Decimal
        return int(digits) * _SCALE[len(part)]
    try:
        exact = Decimal(value.strip()) * 1000
        return int(exact.to_integral_value(ROUND_HALF_EVEN)) if abs(exact) < 2**63 else None
    except ArithmeticError:
        return None


def integer(value: object) -> int | None:
    """A number, or the last number in a text such as `stream 7`; None without or beyond 62 bits."""
    if type(value) is int:
        return value if abs(value) < 2**62 else None
    found = _LAST_INTEGER.search(value) if isinstance(value, str) else None
    return int(found[1]) if found else None


def at_least(lowest: int, value: object, below: int = 2**62) -> int:
    """The integer in a value where it is in [lowest, below), else lowest."""
    found = integer(value)
    return found if found is not None and lowest <= found < below else lowest
