"""Copy rates of a device as `doctor` shows them: pinned and pageable, each way and both at once, CPU idle or loaded."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from functools import partial

from cuzkbench.device import RunDevice
from cuzkbench.events import Memory
from cuzkbench.prover.load import CpuLoad

COPY_BYTES = 1 << 30
ROUNDS = 5


def bandwidths(device: RunDevice, nbytes: int = COPY_BYTES) -> dict[str, dict[str, float]]:
    """GB/s by CPU state (idle, loaded: all cores but two copying memory) and kind of copy; medians of wall times."""
    found = {"idle": _rates(device, nbytes)}
    load = CpuLoad(max(1, (os.cpu_count() or 1) - 2))
    try:
        found["loaded"] = _rates(device, nbytes)
    finally:
        load.stop()
    return found


def _rates(device: RunDevice, nbytes: int) -> dict[str, float]:
    up, down, there = device.stream(), device.stream(), device.buffer(2 * nbytes)
    upper, lower = there.view(0, nbytes), there.view(nbytes, nbytes)
    rates = {}
    for memory in (Memory.PINNED, Memory.PAGEABLE):
        source, target = device.host_buffer(nbytes, memory), device.host_buffer(nbytes, memory)
        upload = partial(device.upload, up, upper, source.array, memory)
        download = partial(device.download, down, target.array, lower)
        kinds: dict[str, list[Callable[[], None]]] = {"H2D": [upload], "D2H": [download]}
        if memory is Memory.PINNED:
            kinds["both ways"] = [upload, download]
        for way, copies in kinds.items():
            seconds = []
            for _ in range(ROUNDS):
                start = time.perf_counter()
                for copy in copies:
                    copy()
                up.synchronize()
                down.synchronize()
                seconds.append(time.perf_counter() - start)
            rates[f"{memory.value.lower()} {way}"] = len(copies) * nbytes / statistics.median(seconds) / 1e9
        for buffer in (source, target):
            device.free_host_buffer(buffer)
    device.free(there)
    return rates
