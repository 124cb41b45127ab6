"""Host memory of the partitions in flight, by policy: synthesis writes into its buffers, uploads read from them.

Every policy makes its buffers before the run, of the exact size, and uses them again from partition to partition: two
plans that differ in the memory policy differ in nothing else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Several
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np

from cuzkbench.device import RunDevice
from cuzkbench.device.base import DeviceBuffer, HostBuffer, Sequence, Stream
from cuzkbench.events import Lane, Memory, Phase
from cuzkbench.machine import available_host_bytes
from cuzkbench.prover.handoff import Stopped
from cuzkbench.timing import Scope

STAGING_THREADS = 4
RING_CHUNK_BYTES = 64 << 20  # two of these a worker
RING_CHUNK_LEAST = 64 << 10


class Pool:
    """Buffers of one partition each, made by `fill`: their number is the cap."""

    def __init__(self, device: RunDevice, memory: Memory, nbytes: int) -> None:
        self._device, self._memory, self._nbytes = device, memory, nbytes
        self._changed = threading.Condition()
        self._stopped = False
        self._buffers: list[HostBuffer] = []
        self._free: list[HostBuffer] = []
        self.in_use = self.high_water = self.handed_out = 0

    def fill(self, count: int, scope: Scope) -> None:
        """Make the buffers; raises MemoryError."""
        for _ in range(count):
            with scope.span(Phase.ALLOC, "make"):
                self._buffers.append(self._device.host_buffer(self._nbytes, self._memory))
            self._free.append(self._buffers[-1])

    def checkout(self, scope: Scope) -> HostBuffer:
        """A free buffer; waits for one and records the wait. Raises Stopped after `stop`."""
        with self._changed:
            if not self._free:
                with scope.span(Phase.ALLOC, "buffer"):
                    self._changed.wait_for(lambda: self._free or self._stopped)
            if self._stopped:
                raise Stopped
            self.in_use += 1
            self.handed_out += 1
            self.high_water = max(self.high_water, self.in_use)
            return self._free.pop()  # the latest one back: as few buffers as the run needs are touched

    def checkin(self, buffer: HostBuffer) -> None:
        """Give a buffer back for the next partition."""
        with self._changed:
            self.in_use -= 1
            self._free.append(buffer)
            self._changed.notify()

    def stop(self) -> None:
        """Wake everyone who waits."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def counters(self) -> dict[str, int]:
        """For the trailer."""
        return {
            "high_water_bytes": self.high_water * self._nbytes,
            "high_water_buffers": self.high_water,
            "allocated": len(self._buffers),
            "reused": self.handed_out - self.high_water,
        }

    def close(self) -> None:
        """Free all, to be called when nobody uses one any more."""
        for buffer in self._buffers:
            self._device.free_host_buffer(buffer)


class Copies:
    """Uploads of one worker, and how to learn their times once their stream is known to have done them."""

    kind = Memory.PINNED  # what the rows say
    made_of = Memory.PINNED  # what the pool's buffers are
    last_use = "kernels"  # the stage after which the buffer is free

    def __init__(self, device: RunDevice, stream: Stream, vector_bytes: int) -> None:
        self.device, self.stream = device, stream
        self._under_way: list[
            tuple[str, int, Callable[[], Iterable[tuple[Any, Any]]]]
        ] = []  # name, bytes, start and end

    def upload(self, scope: Scope, target: DeviceBuffer, source: np.ndarray, name: str) -> None:
        """Queue one vector's copy."""
        start = scope.mark(self.stream)
        self.device.upload(self.stream, target, source, self.kind)
        marks = [(start, scope.mark(self.stream))]
        self._under_way.append((name, source.nbytes, lambda: marks))

    def finish(self, scope: Scope) -> None:
        """Block until all copies are done, and record them."""
        self.stream.synchronize()
        done, self._under_way = self._under_way, []
        for name, nbytes, times in done:
            for pair in times():
                scope.between(Phase.H2D, Lane.COPY_H2D, name, pair, self.stream.number, nbytes, self.kind)

    def close(self) -> None:
        """Give back what the policy itself made."""


class Pinned(Copies):
    """Memory that the bus reads directly. The pool's buffers come again and again, so each copy is a sequence."""

    def __init__(self, device: RunDevice, stream: Stream, vector_bytes: int) -> None:
        super().__init__(device, stream, vector_bytes)
        self._sequences: dict[tuple[int, int], Sequence] = {}

    def upload(self, scope: Scope, target: DeviceBuffer, source: np.ndarray, name: str) -> None:
        """Launch one vector's copy; a worker has one target for each vector."""
        key = (source.ctypes.data, source.nbytes)
        if key not in self._sequences:

            def copy(stream: Stream) -> None:
                self.device.upload(stream, target, source, self.kind)

            self._sequences[key] = self.device.sequence(self.stream, [copy], timed=scope.recorder.timing)
        sequence = self._sequences[key]
        sequence.launch()
        self._under_way.append((name, source.nbytes, lambda: pairwise(sequence.times_ns())))


class Pageable(Copies):
    """Heap memory, copied as it is: the driver stages it through a bounce buffer."""

    kind = made_of = Memory.PAGEABLE


class Registered(Copies):
    """Heap memory, page-locked in place around each partition."""

    kind, made_of = Memory.REGISTERED, Memory.PAGEABLE
    last_use = "unregister"


class Staged(Copies):
    """Heap memory, copied by threads through two pinned chunks: one fills while the other crosses the bus."""

    kind, made_of = Memory.STAGED, Memory.PAGEABLE

    def __init__(self, device: RunDevice, stream: Stream, vector_bytes: int) -> None:
        super().__init__(device, stream, vector_bytes)
        self._chunk = min(RING_CHUNK_BYTES, max(RING_CHUNK_LEAST, vector_bytes // 4))
        self._ring: list[tuple[HostBuffer, Any]] = [
            (device.host_buffer(self._chunk, Memory.PINNED), None) for _ in range(2)
        ]
        self._threads = ThreadPoolExecutor(STAGING_THREADS, "staging")

    def upload(self, scope: Scope, target: DeviceBuffer, source: np.ndarray, name: str) -> None:
        """Queue one vector's copy chunk by chunk, each after its staging."""
        for offset in range(0, source.nbytes, self._chunk):
            buffer, used = self._ring.pop(0)
            if used is not None:
                used.synchronize()
            part = source[offset : offset + self._chunk]
            with scope.span(Phase.STAGE, "ring"):
                pieces = (np.array_split(array, STAGING_THREADS) for array in (buffer.array[: part.nbytes], part))
                list(self._threads.map(np.copyto, *pieces))
                time.sleep(self.device.emulated_ns("stage", part.nbytes) / 1e9)
            super().upload(scope, target.view(offset, part.nbytes), buffer.array[: part.nbytes], name)
            self._ring.append((buffer, self.stream.record()))

    def close(self) -> None:
        """Free the ring and end its threads."""
        self._threads.shutdown()
        for buffer, _ in self._ring:
            self.device.free_host_buffer(buffer)


POLICIES: dict[str, type[Copies]] = {"pageable": Pageable, "pinned": Pinned, "registered": Registered, "staged": Staged}


def check_fits(host_bytes: int, device_bytes: int, devices: Several[RunDevice]) -> None:
    """Raises MemoryError with the bytes needed (of each device) and available, before anything is allocated."""
    for device in devices:
        on_device = device.available_bytes()
        if on_device is None:
            host_bytes += device_bytes
        elif device_bytes > on_device:
            raise MemoryError(
                f"device memory: {device_bytes:,} bytes needed, {on_device:,} available; "
                "take a smaller --log2-size or fewer --workers"
            )
    available = available_host_bytes()
    if available is not None and host_bytes > available:
        raise MemoryError(
            f"host memory: {host_bytes:,} bytes needed, {available:,} available; "
            "take a smaller --log2-size, or fewer --workers or --synthesis-workers"
        )
