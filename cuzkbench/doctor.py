"""What this machine can do: host, versions, GPUs; what is missing, what that costs, and how to get it."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from cuzkbench import __version__, machine
from cuzkbench.events import Memory

if TYPE_CHECKING:
    from cuzkbench.device import RunDevice

LIBRARIES = ("numpy", "pandas", "pyarrow", "plotly", "numba", "simpy", "py-arkworks-bls12381", "cupy-cuda13x")
COPY_BYTES, ROUNDS = 1 << 30, 5  # 20 ms a pinned copy: the microseconds of its launch do not count
ENOUGH_LOCKED_BYTES = 64 << 30  # the pinned pool of two workers at production size


def versions() -> dict[str, str | None]:
    """cuzkbench, Python and the libraries that matter; None for one that is not installed."""
    return {"cuzkbench": __version__, "python": platform.python_version()} | machine.versions(*LIBRARIES)


def bandwidths(device: RunDevice, nbytes: int = COPY_BYTES) -> dict[str, dict[str, float]]:
    """GB/s by CPU state (idle, loaded: all cores but two copying memory) and kind of copy; medians of wall times."""
    from cuzkbench.prover.load import CpuLoad

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


def examine() -> dict[str, Any]:
    """Everything that `doctor --json` prints."""
    from cuzkbench.device import cuda_count, cuda_missing, open_device

    limit = machine.limit_bytes("RLIMIT_MEMLOCK")
    host = machine.host() | {"available_bytes": machine.available_host_bytes(), "locked_memory_bytes": limit}
    facts: dict[str, Any] = {"host": host, "versions": versions(), "driver": None, "gpus": [], "missing": []}
    missing = cuda_missing()
    if missing is None:
        for gpu in range(cuda_count()):
            device = open_device("cuda", gpu)
            facts["driver"] = device.driver()
            facts["gpus"].append(device.describe() | {"copies_gb_s": bandwidths(device)})
            device.close()
    else:
        how = "an NVIDIA GPU with a driver for CUDA 13, then: pip install 'cuzkbench[gpu]'"
        facts["missing"].append({"what": "CUDA", "why": missing, "how": how})
    if missing is None and limit is not None and limit < ENOUGH_LOCKED_BYTES:
        why = f"this process may lock {limit:,} bytes; registering larger buffers can fail"
        facts["missing"].append({"what": "locked memory", "why": why, "how": "ulimit -l unlimited"})
    return facts


def doctor(as_json: bool) -> None:
    """`cuzkbench doctor`."""
    from cuzkbench.answers import print_json
    from cuzkbench.tables import show

    facts = examine()
    if as_json:
        return print_json(facts)
    for name, value in facts["host"].items():
        show(f"{name:<20} {f'{value:,}' if isinstance(value, int) else value or 'no limit or unknown'}")
    for name, number in facts["versions"].items():
        show(f"{name:<20} {number or 'not installed'}")
    for gpu in facts["gpus"]:
        told = {name: value for name, value in gpu.items() if name not in ("gpu", "copies_gb_s")}
        show(f"GPU {gpu['gpu']:<16} {', '.join(f'{name} {value}' for name, value in told.items())}")
        for state, rates in gpu["copies_gb_s"].items():
            show(f"  {state + ' CPU':<18} {', '.join(f'{kind} {rate:.1f} GB/s' for kind, rate in rates.items())}")
    for need in facts["missing"]:
        show(f"missing: {need['what']}: {need['why']}\n  how to get it: {need['how']}")
    return None
