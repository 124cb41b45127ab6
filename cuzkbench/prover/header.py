"""What a run's log says before its rows: the machine, the plan, the devices and what was measured before the start."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from cuzkbench import machine
from cuzkbench.device import RunDevice
from cuzkbench.events import FORMAT_VERSION
from cuzkbench.plan import RunPlan
from cuzkbench.prover.work import Work

LIBRARIES = ("cuzkbench", "numpy", "numba", "py-arkworks-bls12381", "cupy-cuda13x")  # that take part in a run


def run_id(plan: RunPlan) -> str:
    """Unique, and readable in a legend."""
    name = plan.preset or f"{plan.lock}-{plan.memory}-{plan.workers}"
    return f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"


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
        "host": machine.host(),
        "gpus": [
            device.describe() | ({"emulation": emulation} if emulation else {})
            for device, emulation in zip(devices, emulations, strict=True)
        ],
        "driver": devices[0].driver(),
        "versions": {name: number for name, number in machine.versions(*LIBRARIES).items() if number},
        "plan": plan.as_mapping(),
        "seed": work.seed,
        "line_rate_gb_s": line_rate_gb_s,
        "clock": devices[0].clock_fit(),
        "emulation": emulations[0],
        "source": None,
        "warnings": [],
    }
