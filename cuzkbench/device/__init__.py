"""Devices: `base` is the contract, `host` defines what it means, `cuda` is the fast one. A run opens them here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from cuzkbench.device.base import Device
from cuzkbench.events import Clock

if TYPE_CHECKING:
    from cuzkbench.timing import Ranges


class RunDevice(Device, Protocol):
    """What a run asks of a device beside the contract of `base.py`: how it is timed, and what is emulated."""

    event_clock: Clock  # what stamps its events
    ranges: Ranges | None  # names for a profiler
    emulates_load: bool  # RunPlan.cpu_load is a stated factor here, no threads are started
    fixed_base: Callable[[str, np.ndarray], np.ndarray] | None  # multiples of a generator, for `keys.load`

    def driver(self) -> str | None:
        """The driver's version."""

    def available_bytes(self) -> int | None:
        """Device memory that a run may take; None where it is the host's."""

    def calibrate(self, measures: Sequence[Callable[[], int]], nbytes: int, loaded: bool) -> dict[str, Any] | None:
        """Get ready for timed work: each measure runs one worker's kernels once and returns their nanoseconds.

        An emulating device scales its link and CPU stages to them, for partitions of nbytes beside a loaded or an
        idle CPU, and returns what it did for the log header.
        """

    def emulated_ns(self, stage: str, nbytes: int = 0) -> int:
        """How long a CPU stage (by the name in `stages.py`, or "stage") is made to last on top of its real work."""

    def line_rate(self) -> dict[str, float]:
        """What a pinned copy reaches now, GB/s by direction: {"H2D": …, "D2H": …}."""

    def clock_fit(self) -> dict[str, Any] | None:
        """How the device's clock maps to the host's: {offset_ns, drift_ppm, bound_ns}; None where they are one."""

    def counters(self) -> dict[str, float]:
        """Samples of the device's own counters, by name."""


def cuda_missing() -> str | None:
    """What keeps the CUDA device from working on this machine, or None."""
    if find_spec("cupy") is None:
        return "CuPy is not installed: pip install 'cuzkbench[gpu]'"
    runtime = import_module("cupy").cuda.runtime
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        return f"the NVIDIA driver does not answer: {error}"
    return None if count else "no NVIDIA GPU was found"


def cuda_count() -> int:
    """How many NVIDIA GPUs there are; 0 where `cuda_missing` names something."""
    return 0 if cuda_missing() else int(import_module("cupy").cuda.runtime.getDeviceCount())


def open_device(spec: str, gpu: int = 0) -> RunDevice:
    """The device of a plan's spec: auto, host, cuda or cuda:N; `gpu` is its number in the log, counted from N on.

    `auto` takes CUDA where it works, else the host with a label that says so. Raises ValueError for another spec,
    or for `cuda` where something is missing.
    """
    base, _, index = spec.partition(":")
    if base not in ("auto", "host", "cuda"):
        raise ValueError(f"device {spec!r}: auto, host, cuda or cuda:N")
    missing = cuda_missing() if base != "host" else None
    if base == "cuda" and missing:
        raise ValueError(f"device {spec}: {missing}")
    if base == "host" or missing:
        from cuzkbench.device.host import LABEL, HostDevice

        device: Any = HostDevice(gpu, (LABEL,) if missing is None else (LABEL, f"no GPU used: {missing}"))
    else:
        device = import_module("cuzkbench.device.cuda").CudaDevice(int(index or 0) + gpu, gpu)
    opened: RunDevice = device  # by its methods: each device takes its own buffers and streams only
    return opened
