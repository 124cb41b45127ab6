"""Runs the CUDA kernels on the host for the tests: the same sources, built by g++ behind `cuda_on_host.hpp`."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuzkbench.device.kernels import nvrtc

HERE = Path(__file__).parent
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to build the portable path")


@lru_cache
def _library(source: str, macros: tuple[str, ...]) -> ctypes.CDLL:
    texts = {
        **nvrtc.sources(),
        **{name: (HERE / name).read_text() for name in ("cuda_on_host.hpp", "field_kernels.cu")},
    }
    digest = hashlib.sha256("\0".join([source, *macros, *texts.values()]).encode()).hexdigest()[:24]
    target = Path(tempfile.gettempdir()) / f"cuzkbench-host-kernels-{digest}.so"
    if not target.exists():
        with tempfile.TemporaryDirectory() as directory:
            for name, text in texts.items():
                (Path(directory) / name).write_text(text)
            command = ["g++", "-O2", "-std=c++17", "-shared", "-fPIC", "-w", *(f"-D{macro}" for macro in macros)]
            built = f"{directory}/kernels.so"
            command += ["-include", "cuda_on_host.hpp", "-x", "c++", source, "-o", built]
            subprocess.run(command, cwd=directory, check=True, timeout=300)
            shutil.move(built, target)
    return ctypes.CDLL(str(target))


class HostLauncher:
    """A `Launcher` whose device memory is the host's and whose streams run at once."""

    multiprocessors, threads_per_multiprocessor = 1, 64

    def __init__(self) -> None:
        self._memory: list[np.ndarray] = []
        self.launches: list[tuple[str, tuple[int, ...], int]] = []

    def launch(
        self, module: str, kernel: str, grid: Sequence[int], block: int, args: Sequence[Any], shared: int, stream: int
    ) -> None:
        library = _library(*nvrtc.MODULES.get(module, (f"{module}.cu", ())))
        assert len(args) <= 12 and shared <= 1 << 16 and block <= 1024
        size = (*grid, *(1,) * (3 - len(grid)))
        self.launches.append((kernel, size, block))
        library.run_kernel(
            ctypes.cast(getattr(library, kernel), ctypes.c_void_p),
            (ctypes.c_uint * 3)(*size),
            ctypes.c_uint(block),
            (ctypes.c_uint64 * 12)(*(int(a) for a in args)),
        )

    def allocate(self, nbytes: int) -> int:
        memory = np.empty(nbytes + 64, np.uint8)
        self._memory.append(memory)
        return -(-memory.ctypes.data // 64) * 64

    def put(self, data: bytes) -> int:
        """Address of a copy of some bytes."""
        address = self.allocate(len(data))
        self.write(address, data)
        return address

    def write(self, address: int, data: bytes) -> None:
        ctypes.memmove(address, data, len(data))

    def read(self, address: int, nbytes: int) -> bytes:
        return ctypes.string_at(address, nbytes)

    def synchronize(self, stream: int) -> None:
        pass
