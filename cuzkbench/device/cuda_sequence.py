"""Work that is queued alike for every partition, as one CUDA graph with its time marks inside.

One launch instead of a hundred, and the marks lie between the kernels on the device: no latency of the host, which
shares its cores and the driver's lock with pageable copies of other threads, can be mistaken for a kernel's time.
Behind a launch the first kernel of a graph waited for up to 82 µs on an H200 (against CUPTI's record): sequences of
kernels begin with an empty one, so that this start-up lies before the first mark.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from cuzkbench.events import DeviceError

EXTERNAL = 1  # CU_EVENT_RECORD_EXTERNAL: an event record node, where plain recording would only order the capture


@cache
def _driver() -> ctypes.CDLL:
    library = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
    library.cuEventRecordWithFlags.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint)
    return library


class CudaSequence:
    """Steps on one stream, captured at the first launch; what they need must exist by then (run them once before)."""

    def __init__(
        self,
        device: Any,
        stream: Any,
        steps: Sequence[Callable[[Any], None]],
        timed: bool,
        lead: Callable[[Any], None] | None = None,
    ) -> None:
        self._device, self._stream, self._steps, self._lead = device, stream, steps, lead
        marks = len(steps) + 1 if timed else 0
        self._events = [device.cupy.cuda.Event(block=True) for _ in range(marks)]
        self._graph: Any = None
        self._anchor = device.clock.anchor

    def prepare(self) -> None:
        """Capture the steps and launch them once: what only a first launch costs is spent here."""
        self.launch()
        self._stream.synchronize()

    def launch(self) -> None:
        """Queue all steps; raises DeviceError with the driver's words."""
        self._device.enter()
        with self._device.words("graphLaunch", f"{len(self._steps)} steps"):
            if self._graph is None:
                self._capture()
            self._anchor = self._device.clock.anchor
            self._graph.launch(self._stream.stream)

    def times_ns(self) -> list[int]:
        """Instants around the steps of the last launch, once the stream was synchronised; empty if untimed."""
        self._device.enter()
        return [self._device.clock.host_ns(self._anchor, event) for event in self._events]

    def _capture(self) -> None:
        stream = self._stream.stream
        if self._lead is not None:
            self._lead(self._stream)  # loaded by now: loading ends a capture
        stream.begin_capture()
        try:
            if self._lead is not None:
                self._lead(self._stream)
            self._mark(0)
            for number, step in enumerate(self._steps, 1):
                step(self._stream)
                self._mark(number)
        finally:
            self._graph = stream.end_capture()

    def _mark(self, number: int) -> None:
        if self._events:
            status = _driver().cuEventRecordWithFlags(self._events[number].ptr, self._stream.pointer, EXTERNAL)
            if status:
                raise DeviceError("cuEventRecordWithFlags", f"mark {number} of a capture", f"CUDA error {status}")
