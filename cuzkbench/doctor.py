"""What this machine can do: host, versions, GPUs; what is missing, what that costs, and how to get it."""

from __future__ import annotations

import platform
from typing import Any

from cuzkbench import __version__, machine

LIBRARIES = ("numpy", "pandas", "pyarrow", "plotly", "numba", "simpy", "py-arkworks-bls12381", "cupy-cuda13x")
ENOUGH_LOCKED_BYTES = 64 << 30  # the pinned pool of two workers at production size


def versions() -> dict[str, str | None]:
    """cuzkbench, Python and the libraries that matter; None for one that is not installed."""
    return {"cuzkbench": __version__, "python": platform.python_version()} | machine.versions(*LIBRARIES)


def examine() -> dict[str, Any]:
    """Everything that `doctor --json` prints."""
    from cuzkbench.device import cuda_count, cuda_missing, open_device
    from cuzkbench.device.bandwidth import bandwidths

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
