"""Device memory, events and streams of the CUDA device, and the driver's words where one of its calls fails."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from cuzkbench.events import DeviceError

if TYPE_CHECKING:
    from cuzkbench.device.cuda import CudaDevice


class Words:
    """Turns the runtime's exceptions into DeviceError with the call and its shape."""

    __slots__ = ("_call", "_cupy", "_shape")

    def __init__(self, cupy: Any, call: str, shape: str) -> None:
        self._cupy, self._call, self._shape = cupy, call, shape

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, self._cupy.cuda.runtime.CUDARuntimeError):
            raise DeviceError(self._call, self._shape, str(error)) from error


class CudaBuffer:
    """Device memory by address. Views keep their parent alive; the device frees what `buffer` made."""

    def __init__(self, address: int, nbytes: int, owner: CudaBuffer | None = None) -> None:
        self.address, self.nbytes, self._owner = address, nbytes, owner

    def view(self, offset: int, nbytes: int) -> CudaBuffer:
        """A part of this buffer; raises ValueError outside of it."""
        if offset < 0 or nbytes < 0 or offset + nbytes > self.nbytes:
            raise ValueError(f"view {offset}+{nbytes} of a device buffer of {self.nbytes} bytes")
        return CudaBuffer(self.address + offset, nbytes, self)


class Events:
    """The driver's events, made ahead and used again.

    Making one takes a lock of the driver that a pageable copy holds to its end: beside copies of 4 GiB it took 1.1 s on
    an H200, where recording, waiting, launching and synchronising took 0.1 ms at most.
    """

    def __init__(self, cupy: Any, block: bool, count: int) -> None:
        self._make = lambda: cupy.cuda.Event(block=block)
        self._free = deque(self._make() for _ in range(count))

    def take(self) -> Any:
        """An event that nobody uses; a new one where none is left."""
        try:
            return self._free.pop()
        except IndexError:
            return self._make()

    def give(self, event: Any) -> None:
        """Put one back. Streams may still wait for it: they wait for what it recorded when they were told to."""
        self._free.append(event)


class CudaEvent:
    """A CUDA event with timing; its time is mapped to the host's clock through the anchor taken last before it."""

    def __init__(self, device: CudaDevice, stream: CudaStream) -> None:
        self._device = device
        self._anchor = device.clock.anchor
        self.event = device.events.take()
        self.event.record(stream.stream)

    def __del__(self) -> None:
        if hasattr(self, "event"):
            self._device.events.give(self.event)

    def synchronize(self) -> None:
        """Block until the stream has passed the event; the driver's words on failure."""
        self._device.enter()
        with self._device.words("eventSynchronize", "event"):
            self.event.synchronize()

    def time_ns(self) -> int:
        """When the stream passed it, in `time.perf_counter_ns` terms."""
        self.synchronize()
        return self._device.clock.host_ns(self._anchor, self.event)


class CudaStream:
    """A non-blocking CUDA stream."""

    def __init__(self, device: CudaDevice, number: int) -> None:
        self._device, self.number = device, number
        device.enter()
        self.stream = device.cupy.cuda.Stream(non_blocking=True)

    @property
    def pointer(self) -> int:
        """The driver's handle."""
        return int(self.stream.ptr)

    def record(self) -> CudaEvent:
        """An event after everything queued so far."""
        self._device.enter()
        return CudaEvent(self._device, self)

    def wait(self, event: CudaEvent) -> None:
        """Hold later work until the event has passed."""
        self._device.enter()
        self.stream.wait_event(event.event)

    def synchronize(self) -> None:
        """Block until all queued work is done."""
        self._device.enter()
        with self._device.words("streamSynchronize", f"stream {self.number}"):
            self.stream.synchronize()
