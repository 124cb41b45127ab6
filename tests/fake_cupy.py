"""As much of CuPy as the CUDA device uses, over host memory: streams run at once, captures are lists of calls.

With `kernels_on_host.HostLauncher` in the loader the whole device runs without a GPU; it says nothing about timing.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
import time
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from tests.kernels_on_host import HostLauncher


class RuntimeFailure(RuntimeError):
    """CuPy's CUDARuntimeError."""


class Fake:
    """One pretended GPU; `module` is what `import cupy` gives."""

    def __init__(self) -> None:
        self.memory: dict[int, np.ndarray] = {}
        self.events: dict[int, Any] = {}
        self.captures: dict[int, list[Callable[[], None]]] = {}
        self.copies: list[tuple[int, int]] = []  # (bytes, kind) as they ran
        self.fail_copies = False
        self._numbers, self._lock = itertools.count(1), threading.Lock()
        fake = self

        class Event:
            def __init__(self, block: bool = False) -> None:
                self.ptr, self.at = next(fake._numbers), 0.0
                fake.events[self.ptr] = self

            def record(self, stream: Any) -> None:
                self.at = time.perf_counter()

            def synchronize(self) -> None:
                assert self.at, "an event that no stream has passed"

            done = True

        class Stream:
            def __init__(self, non_blocking: bool = False) -> None:
                assert non_blocking
                self.ptr = next(fake._numbers)

            def wait_event(self, event: Event) -> None:
                event.synchronize()

            def synchronize(self) -> None:
                assert self.ptr not in fake.captures, "a capture synchronised"

            def begin_capture(self) -> None:
                fake.captures[self.ptr] = []

            def end_capture(self) -> Any:
                calls = fake.captures.pop(self.ptr)

                def launch(stream: Any) -> None:
                    for call in calls:
                        call()

                return SimpleNamespace(launch=launch)

        runtime = SimpleNamespace(
            CUDARuntimeError=RuntimeFailure,
            setDevice=lambda index: None,
            getDeviceCount=lambda: 1,
            driverGetVersion=lambda: 13000,
            memGetInfo=lambda: (8 << 30, 8 << 30),
            deviceGetPCIBusId=lambda index: "0000:00:00.0",
            getDeviceProperties=lambda index: {
                "name": b"pretended GPU",
                "major": 9,
                "minor": 0,
                "multiProcessorCount": 1,
                "totalGlobalMem": 8 << 30,
                "asyncEngineCount": 2,
            },
            malloc=self.allocate,
            free=lambda address: self.memory.pop(address),
            hostAlloc=lambda nbytes, flags: self.allocate(nbytes),
            freeHost=lambda address: self.memory.pop(address),
            hostRegister=lambda address, nbytes, flags: None,
            hostUnregister=lambda address: None,
            memcpyAsync=self.copy,
        )
        cuda = SimpleNamespace(
            runtime=runtime,
            Event=Event,
            Stream=Stream,
            get_elapsed_time=lambda start, end: (end.at - start.at) * 1e3,
            nvtx=SimpleNamespace(RangePush=lambda name: None, RangePop=lambda: None),
        )
        self.module = ModuleType("cupy")
        self.module.__spec__ = ModuleSpec("cupy", None)
        self.module.cuda = cuda

    def allocate(self, nbytes: int) -> int:
        """Aligned memory that is not zero."""
        memory = np.full(nbytes + 64, 0xA5, np.uint8)
        address = -(-memory.ctypes.data // 64) * 64
        self.memory[address] = memory
        return address

    def do(self, stream: int, call: Callable[[], None]) -> None:
        """Run a call, or keep it for the graph that the stream captures."""
        if stream in self.captures:
            self.captures[stream].append(call)
        else:
            call()

    def copy(self, target: int, source: int, nbytes: int, kind: int, stream: int) -> None:
        """cudaMemcpyAsync."""
        if self.fail_copies:
            raise RuntimeFailure("cudaErrorIllegalAddress: an illegal memory access was encountered")

        def move() -> None:
            ctypes.memmove(target, source, nbytes)
            self.copies.append((nbytes, kind))

        self.do(stream, move)

    def cuEventRecordWithFlags(self, event: int, stream: int, flags: int) -> int:
        """An event record node, in a capture only."""
        assert flags == 1 and stream in self.captures
        self.captures[stream].append(lambda: self.events[event].record(None))
        return 0


class CapturingLauncher(HostLauncher):
    """Launches for a fake's streams."""

    def __init__(self, fake: Fake) -> None:
        super().__init__()
        self._fake, self._one_at_a_time = fake, threading.Lock()

    def launch(self, module: str, kernel: str, grid: Any, block: int, args: Any, shared: int, stream: int) -> None:
        """Queue one kernel."""

        def run() -> None:
            with self._one_at_a_time:
                HostLauncher.launch(self, module, kernel, grid, block, args, shared, stream)

        self._fake.do(stream, run)
