"""The machine that a run happens on: processor, memory and its limits, and the versions of what takes part."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any


def host() -> dict[str, Any]:
    """The host without its name; None for what the system does not say."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_bytes": _pages("SC_PHYS_PAGES"),
        "os": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())


def _pages(name: str) -> int | None:
    """Bytes of that many pages."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf(name) if hasattr(os, "sysconf") else None


def available_host_bytes() -> int | None:
    """Memory that new buffers can take, within the limits of control group and process; None where unknown."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):  # not Linux, or one that does not say
        return _pages("SC_AVPHYS_PAGES")
    group = Path("/sys/fs/cgroup")
    if (group / "memory.max").exists() and (most := (group / "memory.max").read_text().strip()) != "max":
        used = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        free = min(free, int(most) - int(used["anon"]))  # the page cache gives way
    if (limit := limit_bytes("RLIMIT_AS")) is not None:  # ulimit -v
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        free = min(free, limit - taken)
    return free


def limit_bytes(name: str) -> int | None:
    """A limit of this process, such as RLIMIT_MEMLOCK; None without one, or where the system has no such thing."""
    try:
        import resource
    except ImportError:
        return None
    limit = resource.getrlimit(getattr(resource, name))[0]
    return None if limit == resource.RLIM_INFINITY else limit


def versions(*libraries: str) -> dict[str, str | None]:
    """The version of each library by name; None for one that is not installed."""
    found: dict[str, str | None] = {}
    for name in libraries:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found
