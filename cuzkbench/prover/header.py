"""What a run's log says before its rows: the machine, the plan, the devices and what was measured before the start."""

from __future__ import annotations

import os
import platform
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from cuzkbench.device import RunDevice
from cuzkbench.events import FORMAT_VERSION
from cuzkbench.plan import RunPlan
from cuzkbench.prover.work import Work

LIBRARIES = ("cuzkbench", "numpy", "numba", "py-arkworks-bls12381", "cupy-cuda13x")


def run_id(plan: RunPlan) -> str:
    """Unique, and readable in a legend."""
    name = plan.preset or f"{plan.lock}-{plan.memory}-{plan.workers}"
    return f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"


def machine() -> dict[str, Any]:
    """The host without its name."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else None,
        "os": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())


def _versions() -> dict[str, str]:
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue  # the log names what took part
    return found


def header(
    plan: RunPlan,
    devices: Sequence[RunDevice],
    work: Work,
    emulations: Sequence[dict[str, Any] | None],
    line_rate_gb_s: Mapping[str, Mapping[str, float]],
) -> dict[str, Any]:
    """All of events.HEADER but `run` and `epoch_utc`, which are the recorder's."""
    labels = dict.fromkeys(label for device in devices for label in (*device.labels, *work.labels))
    return {
        "format_version": FORMAT_VERSION,
        "device_kind": devices[0].kind,
        "kernels": "timed" if plan.timed_seconds else "real",
        "labels": list(labels),
        "host": machine(),
        "gpus": [
            device.describe() | ({"emulation": emulation} if emulation else {})
            for device, emulation in zip(devices, emulations, strict=True)
        ],
        "driver": devices[0].driver(),
        "versions": _versions(),
        "plan": plan.as_mapping(),
        "seed": work.seed,
        "line_rate_gb_s": line_rate_gb_s,
        "clock": devices[0].clock_fit(),
        "emulation": emulations[0],
        "source": None,
        "warnings": [],
    }
