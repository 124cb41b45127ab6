"""NVML's counters of one GPU: utilisation, PCIe throughput, power, memory, clock. Missing NVML is said, not hidden."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Nvml:
    """One GPU by its PCI bus id. `missing` says why there are no samples, or is None."""

    def __init__(self, bus_id: str) -> None:
        self.missing: str | None = None
        try:
            self._nvml: Any = import_module("pynvml")
        except ImportError:
            self.missing = "nvidia-ml-py is not installed: pip install 'cuzkbench[gpu]'"
            return
        try:
            self._nvml.nvmlInit()
            self._handle = self._nvml.nvmlDeviceGetHandleByPciBusId(bus_id)
        except self._nvml.NVMLError as error:
            self.missing = f"NVML does not answer: {error}"

    def describe(self) -> dict[str, Any] | str:
        """PCIe link now and at most, power limit, driver; or why NVML is missing."""
        if self.missing:
            return self.missing
        nvml, handle = self._nvml, self._handle
        facts = {
            "driver": nvml.nvmlSystemGetDriverVersion,
            "pcie_generation": lambda: nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle),
            "pcie_generation_max": lambda: nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle),
            "pcie_width": lambda: nvml.nvmlDeviceGetCurrPcieLinkWidth(handle),
            "pcie_width_max": lambda: nvml.nvmlDeviceGetMaxPcieLinkWidth(handle),
            "power_limit_w": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3,
        }
        return {name: value for name, read in facts.items() if (value := self._read(read)) is not None}

    def sample(self) -> dict[str, float]:
        """The counters that this GPU has, by name with units."""
        if self.missing:
            return {}
        nvml, handle = self._nvml, self._handle
        reads = {
            "nvml.utilisation_percent": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
            "nvml.power_w": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
            "nvml.memory_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used,
            "nvml.sm_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            "nvml.pcie_to_gpu_bytes_per_s": lambda: 1024 * nvml.nvmlDeviceGetPcieThroughput(handle, 1),
            "nvml.pcie_from_gpu_bytes_per_s": lambda: 1024 * nvml.nvmlDeviceGetPcieThroughput(handle, 0),
        }
        return {name: float(value) for name, read in reads.items() if (value := self._read(read)) is not None}

    def _read(self, read: Any) -> Any:
        try:
            value = read()
        except self._nvml.NVMLError:  # this GPU lacks the counter: the name is absent, nothing is made up
            return None
        return value.decode() if isinstance(value, bytes) else value
