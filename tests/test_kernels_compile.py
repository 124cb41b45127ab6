"""Every kernel compiles for every architecture that is promised, with NVRTC and no GPU; a cache holds the code."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cuzkbench.device.kernels import launch, nvrtc
from cuzkbench.events import DeviceError

try:
    nvrtc.library()
    MISSING = ""
except DeviceError as error:
    MISSING = str(error)
needs_nvrtc = pytest.mark.skipif(bool(MISSING), reason=MISSING)


@needs_nvrtc
@pytest.mark.compile
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_120"])
def test_every_kernel_compiles(architecture: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        codes = list(pool.map(lambda module: nvrtc.compile_module(module, architecture), nvrtc.MODULES))
    assert all(code.startswith(b"\x7fELF") for code in codes)


@needs_nvrtc
def test_compile_error_names_module_and_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "sources", lambda: {"pointwise.cu": "__global__ void broken() { nonsense; }"})
    with pytest.raises(DeviceError, match=r"pointwise for sm_90.*\n.*pointwise.cu\(1\).*nonsense"):
        nvrtc.compile_module("pointwise", "sm_90")


@needs_nvrtc
def test_machine_code_is_compiled_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(launch.platformdirs, "user_cache_path", lambda *_, **__: tmp_path)
    calls: list[str] = []

    def compile_module(module: str, architecture: str) -> bytes:
        calls.append(module)
        return b"code"

    monkeypatch.setattr(nvrtc, "compile_module", compile_module)
    assert launch.machine_code("ntt", "sm_90") == b"code" == launch.machine_code("ntt", "sm_90")
    assert calls == ["ntt"] and len(list(tmp_path.rglob("*.cubin"))) == 1
    monkeypatch.setattr(nvrtc, "sources", lambda: {"ntt.cu": "changed"})
    launch.machine_code("ntt", "sm_90")
    assert calls == ["ntt", "ntt"]
