"""Compiled modules on a CUDA device through CuPy: code cached on disk by content, launches whose errors say where.

`loader.Kernels` needs only what `Launcher` names; the tests put the host's compiler in its place.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import threading
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import platformdirs

from cuzkbench.device.kernels import nvrtc
from cuzkbench.events import DeviceError


class _Pointer(NamedTuple):
    """All that CuPy reads of a stream to launch on it."""

    ptr: int


class Launcher(Protocol):
    """What `loader.Kernels` asks of a device."""

    multiprocessors: int

    def launch(
        self, module: str, kernel: str, grid: Sequence[int], block: int, args: Sequence[Any], shared: int, stream: int
    ) -> None:
        """Queue one kernel on a stream; `shared` bytes of dynamic shared memory."""

    def allocate(self, nbytes: int) -> int:
        """Address of device memory that lives as long as the launcher."""

    def write(self, address: int, data: bytes) -> None:
        """Copy to the device; done on return."""

    def synchronize(self, stream: int) -> None:
        """Wait for a stream."""


def cached(module: str, architecture: str) -> tuple[Path | None, bytes | None]:
    """Where the machine code of a module belongs, None where no cache can be written, and the code if it is there."""
    text = "\0".join([nvrtc.version(), *nvrtc.options(module, architecture), *nvrtc.sources().values()])
    name = f"{module}-{architecture}-{hashlib.sha256(text.encode()).hexdigest()[:24]}.cubin"
    directory = platformdirs.user_cache_path("cuzkbench", appauthor=False) / "kernels"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        warnings.warn(f"{directory}: {error.strerror}, so every start compiles the kernels anew", stacklevel=2)
        return None, None
    path = directory / name
    return path, path.read_bytes() if path.exists() else None


def machine_code(module: str, architecture: str) -> bytes:
    """Machine code of a module from the cache, or compiled and put there."""
    path, code = cached(module, architecture)
    if code is None:
        code = nvrtc.compile_module(module, architecture)
        if path is not None:
            with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
                file.write(code)
            os.replace(file.name, path)  # whole or not at all: two processes may compile at once
    return code


class CupyLauncher:
    """Launches on CUDA device `index`. Compiles what is missing at once, in threads, and says so on stderr."""

    def __init__(self, index: int) -> None:
        import cupy

        self._cupy, self.index = cupy, index
        properties = cupy.cuda.runtime.getDeviceProperties(index)
        self.multiprocessors = int(properties["multiProcessorCount"])
        self.threads_per_multiprocessor = int(properties["maxThreadsPerMultiProcessor"])
        self.architecture = f"sm_{properties['major']}{properties['minor']}"
        self._modules: dict[str, Any] = {}
        self._functions: dict[tuple[str, str], Any] = {}
        self._memory: list[Any] = []
        self._lock = threading.Lock()
        missing = [module for module in nvrtc.MODULES if cached(module, self.architecture)[1] is None]
        if missing:
            print(
                f"compiling CUDA kernels for {self.architecture}: {', '.join(missing)} …", file=sys.stderr, flush=True
            )
        with ThreadPoolExecutor(len(nvrtc.MODULES)) as pool:
            codes = pool.map(lambda module: machine_code(module, self.architecture), nvrtc.MODULES)
        for module, code in zip(nvrtc.MODULES, codes, strict=True):
            self._modules[module] = cupy.cuda.function.Module()
            self._modules[module].load(code)

    def _function(self, module: str, kernel: str) -> Any:
        with self._lock:
            if (module, kernel) not in self._functions:
                self._functions[module, kernel] = self._modules[module].get_function(kernel)
            return self._functions[module, kernel]

    def launch(
        self, module: str, kernel: str, grid: Sequence[int], block: int, args: Sequence[Any], shared: int, stream: int
    ) -> None:
        """Queue one kernel; raises DeviceError naming it and its shape."""
        size = (*grid, *(1,) * (3 - len(grid)))
        try:
            self._function(module, kernel)(size, (block, 1, 1), tuple(args), shared, _Pointer(stream))
        except self._cupy.cuda.driver.CUDADriverError as error:
            raise DeviceError(kernel, f"{size} blocks of {block}, {shared} bytes shared", str(error)) from error

    def allocate(self, nbytes: int) -> int:
        """Device memory for tables; raises MemoryError with the bytes needed."""
        try:
            memory = self._cupy.cuda.Memory(nbytes)
        except self._cupy.cuda.runtime.CUDARuntimeError as error:
            raise MemoryError(f"{nbytes} bytes of device memory for tables: {error}") from error
        self._memory.append(memory)
        return int(memory.ptr)

    def write(self, address: int, data: bytes) -> None:
        """Copy to the device."""
        self._cupy.cuda.runtime.memcpy(address, _address(data), len(data), 1)

    def synchronize(self, stream: int) -> None:
        """Wait for a stream."""
        self._cupy.cuda.runtime.streamSynchronize(stream)


def _address(data: bytes) -> int:
    import numpy as np

    return int(np.frombuffer(data, np.uint8).ctypes.data)
