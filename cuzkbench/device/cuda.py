"""The CUDA device through CuPy: streams, events, pinned memory and our own kernels behind the contract of `base.py`.

Host memory comes from `hostAlloc` (exact sizes: CuPy's own pinned allocator rounds up to powers of two), copies are
`memcpyAsync` on plain pointers, so that nothing is staged a second time. CuPy is imported when a device is opened.
"""

from __future__ import annotations

import ctypes
import mmap
import statistics
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cuzkbench import bls12_381 as curve
from cuzkbench.bls12_381 import FR_BYTES, G1_BYTES, G2_BYTES
from cuzkbench.device.base import HostBuffer
from cuzkbench.device.cuda_clock import CudaClock
from cuzkbench.device.cuda_sequence import CudaSequence
from cuzkbench.device.cuda_streams import CudaBuffer, CudaStream, Events, Words
from cuzkbench.device.nvml import Nvml
from cuzkbench.events import Clock, Memory

RESERVE_BYTES = 512 << 20  # left free for the context, the modules and the driver
EVENTS = 128  # marks of a few partitions
PROBE_BYTES = 64 << 20  # of the copies that measure the line rate
PROBES = 9
HEAD_START_S = 1e-3
CEILING_COPY_BYTES = 2 << 30
GENERATORS = {
    "g1": curve.g1_to_montgomery(curve.G1_GENERATOR),
    "g2": curve.g2_to_montgomery(curve.G2_GENERATOR),
}


@dataclass(frozen=True)
class CudaKey:
    """A proving key's five queries in device memory."""

    h: CudaBuffer
    l: CudaBuffer  # noqa: E741 (the field's own name)
    a: CudaBuffer
    b_g1: CudaBuffer
    b_g2: CudaBuffer


class CudaDevice:
    """One NVIDIA GPU. Raises DeviceError with the driver's words where a call fails."""

    kind = "cuda"
    event_clock = Clock.DEVICE
    emulates_load = False

    def __init__(self, index: int = 0, gpu: int = 0) -> None:
        import cupy

        from cuzkbench.device.kernels.loader import Kernels

        self.cupy, self.index, self.gpu = cupy, index, gpu
        self.labels: tuple[str, ...] = ()
        self._local = threading.local()
        self._streams: list[CudaStream] = []
        self._buffers: list[CudaBuffer] = []
        self._scratch: dict[int, CudaBuffer] = {}
        self._lock = threading.Lock()
        self.enter()
        self.kernels = Kernels(index)
        self.events = Events(cupy, block=True, count=EVENTS)
        self.clock = CudaClock(self)
        self.ranges = cupy.cuda.nvtx
        self._nvml = Nvml(cupy.cuda.runtime.deviceGetPCIBusId(index))

    # -- errors and threads

    def enter(self) -> None:
        """Make this device current in the calling thread (the runtime keeps it per thread)."""
        if getattr(self._local, "entered", False):
            return
        self.cupy.cuda.runtime.setDevice(self.index)
        self._local.entered = True

    def words(self, call: str, shape: str) -> Words:
        """A context that turns the driver's exceptions into DeviceError."""
        return Words(self.cupy, call, shape)

    def describe(self) -> dict[str, Any]:
        """Name, compute capability, memory and bus of the GPU for the header."""
        properties = self.cupy.cuda.runtime.getDeviceProperties(self.index)
        return {
            "gpu": self.gpu,
            "device": properties["name"].decode(),
            "index": self.index,
            "compute_capability": f"{properties['major']}.{properties['minor']}",
            "multiprocessors": properties["multiProcessorCount"],
            "memory_bytes": properties["totalGlobalMem"],
            "copy_engines": properties["asyncEngineCount"],
            "nvml": self._nvml.describe(),
        }

    def driver(self) -> str:
        """The CUDA driver's version."""
        version = self.cupy.cuda.runtime.driverGetVersion()
        return f"CUDA {version // 1000}.{version % 1000 // 10}"

    # -- what a run asks beside the contract

    def available_bytes(self) -> int:
        """Device memory that a run may take."""
        self.enter()
        return int(self.cupy.cuda.runtime.memGetInfo()[0]) - RESERVE_BYTES

    def calibrate(self, measures: Sequence[Callable[[], int]], nbytes: int, loaded: bool) -> None:
        """Run every worker's kernels once, so that tables, scratch and compiled host code exist before timed work.

        Nothing is emulated.
        """
        for measure in measures:
            measure()
        for group in GENERATORS:
            self.kernels.finish_msm(group, 1, bytes(self.kernels.msm_result_bytes(group, 1)))

    def emulated_ns(self, stage: str, nbytes: int = 0) -> int:
        """Nothing is emulated here."""
        return 0

    def line_rate(self) -> dict[str, float]:
        """GB/s of pinned copies each way, medians of a few copies of 64 MiB, on idle streams."""
        host, device, stream = self.host_buffer(PROBE_BYTES, Memory.PINNED), self.buffer(PROBE_BYTES), self.stream()
        copies = {
            "H2D": lambda: self.upload(stream, device, host.array, Memory.PINNED),
            "D2H": lambda: self.download(stream, host.array, device),
        }
        rates = {}
        for direction, copy in copies.items():
            seconds = []
            for _ in range(PROBES):
                start, _, end = stream.record(), copy(), stream.record()
                end.synchronize()
                seconds.append(self.cupy.cuda.get_elapsed_time(start.event, end.event) / 1e3)
            rates[direction] = PROBE_BYTES / statistics.median(seconds) / 1e9
        self.free_host_buffer(host)
        self.free(device)
        return rates

    def clock_fit(self) -> dict[str, float | None]:
        """How the device's clock maps to the host's so far."""
        return self.clock.fit()

    def counters(self) -> dict[str, float]:
        """Samples of NVML's counters; empty where NVML is missing (the header says so)."""
        return self._nvml.sample()

    # -- memory

    def host_buffer(self, nbytes: int, memory: Memory) -> HostBuffer:
        """PAGEABLE (touched, so that its pages exist) or PINNED host memory of exactly nbytes, from a page's start.

        The heap gives large arrays 16 bytes behind one, from where the driver staged 6.6 instead of 8.1 GB/s (H200).
        """
        if memory is Memory.PAGEABLE:
            heap = np.full(nbytes + mmap.PAGESIZE, 1, np.uint8)  # not zeros: those share one untouched page
            start = -heap.ctypes.data % mmap.PAGESIZE
            return HostBuffer(heap[start : start + nbytes], memory)
        if memory is not Memory.PINNED:
            raise ValueError(f"host memory {memory}: PAGEABLE or PINNED")
        self.enter()
        try:
            address = self.cupy.cuda.runtime.hostAlloc(nbytes, 1)  # 1: portable, usable from every context
        except self.cupy.cuda.runtime.CUDARuntimeError as error:
            raise MemoryError(f"{nbytes} bytes of pinned host memory: {error}") from error
        memory_view: Any = (ctypes.c_uint8 * nbytes).from_address(address)
        array = np.frombuffer(memory_view, np.uint8)
        return HostBuffer(array, memory, address)

    def free_host_buffer(self, buffer: HostBuffer) -> None:
        """Give pinned memory back to the driver; heap memory is the garbage collector's."""
        if buffer.memory is Memory.PINNED and buffer.handle is not None:
            self.enter()
            self.cupy.cuda.runtime.freeHost(buffer.handle)
            buffer.handle = None

    def register(self, buffer: HostBuffer) -> None:
        """Page-lock a heap buffer in place."""
        self.enter()
        with self.words("hostRegister", f"{buffer.array.nbytes} bytes"):
            self.cupy.cuda.runtime.hostRegister(buffer.array.ctypes.data, buffer.array.nbytes, 1)

    def unregister(self, buffer: HostBuffer) -> None:
        """Undo `register`."""
        self.enter()
        with self.words("hostUnregister", f"{buffer.array.nbytes} bytes"):
            self.cupy.cuda.runtime.hostUnregister(buffer.array.ctypes.data)

    def buffer(self, nbytes: int) -> CudaBuffer:
        """Device memory of exactly nbytes; checked against what is free before asking the driver."""
        self.enter()
        free, total = self.cupy.cuda.runtime.memGetInfo()
        if nbytes > free - RESERVE_BYTES:
            raise MemoryError(
                f"{nbytes / 2**30:.2f} GiB of device memory needed, {free / 2**30:.2f} of {total / 2**30:.2f} GiB free"
            )
        with self.words("malloc", f"{nbytes} bytes"):
            buffer = CudaBuffer(self.cupy.cuda.runtime.malloc(max(nbytes, 1)), nbytes)
        with self._lock:
            self._buffers.append(buffer)
        return buffer

    def free(self, buffer: CudaBuffer) -> None:
        """Free a buffer of `buffer` that no queued work uses any more."""
        self.enter()
        with self._lock:
            self._buffers.remove(buffer)
        self.cupy.cuda.runtime.free(buffer.address)

    def stream(self) -> CudaStream:
        """A new non-blocking stream."""
        with self._lock:
            self._streams.append(CudaStream(self, len(self._streams)))
            return self._streams[-1]

    def sequence(
        self, stream: CudaStream, steps: list[Callable[[CudaStream], None]], *, timed: bool, kernels: bool = False
    ) -> CudaSequence:
        """See `base.Device.sequence`: one CUDA graph."""
        return CudaSequence(self, stream, steps, timed, lead=self._nothing if kernels else None)

    # -- copies

    def upload(self, stream: CudaStream, target: CudaBuffer, source: np.ndarray, memory: Memory) -> None:
        """Queue a host-to-device copy; from PAGEABLE memory the driver stages it and the call blocks meanwhile."""
        self.enter()
        if source.nbytes > target.nbytes:
            raise ValueError(f"{source.nbytes} bytes into a device buffer of {target.nbytes}")
        with self.words("memcpyAsync host to device", f"{source.nbytes} bytes"):
            self.cupy.cuda.runtime.memcpyAsync(target.address, source.ctypes.data, source.nbytes, 1, stream.pointer)

    def download(self, stream: CudaStream, target: np.ndarray, source: CudaBuffer) -> None:
        """Queue a device-to-host copy into pinned memory."""
        self.enter()
        if source.nbytes > target.nbytes:
            raise ValueError(f"{source.nbytes} bytes into a host buffer of {target.nbytes}")
        with self.words("memcpyAsync device to host", f"{source.nbytes} bytes"):
            self.cupy.cuda.runtime.memcpyAsync(target.ctypes.data, source.address, source.nbytes, 2, stream.pointer)

    # -- kernels

    def fixed_base(self, group: str, scalars: np.ndarray) -> np.ndarray:
        """Multiples of the group's generator as affine Montgomery bytes, for `keys.generate`; blocks."""
        count, point = scalars.nbytes // FR_BYTES, G1_BYTES if group == "g1" else G2_BYTES
        out = np.empty(count * point, np.uint8)
        sizes = (scalars.nbytes, out.nbytes, self.kernels.fixed_base_scratch_bytes(group, count))
        inputs, outputs, scratch = buffers = [self.buffer(nbytes) for nbytes in sizes]
        stream = self.stream()
        self.upload(stream, inputs, scalars, Memory.PAGEABLE)
        stream.synchronize()
        self.kernels.fixed_base(
            stream.pointer,
            group,
            GENERATORS[group],
            inputs.address,
            count,
            outputs.address,
            scratch.address,
            scratch.nbytes,
        )
        self.download(stream, out, outputs)
        stream.synchronize()
        for buffer in buffers:
            self.free(buffer)
        return out

    def ntt(
        self, stream: CudaStream, values: CudaBuffer, log2_size: int, *, inverse: bool = False, coset: bool = False
    ) -> None:
        """See `base.Device.ntt`."""
        self.enter()
        self.kernels.ntt(stream.pointer, values.address, log2_size, inverse=inverse, coset=coset)

    def ntt_to_reversed(self, stream: CudaStream, values: CudaBuffer, log2_size: int) -> None:
        """See `base.Device.ntt_to_reversed`."""
        self.enter()
        self.kernels.ntt_to_reversed(stream.pointer, values.address, log2_size)

    def quotient(self, stream: CudaStream, a: CudaBuffer, b: CudaBuffer, c: CudaBuffer, log2_size: int) -> None:
        """See `base.Device.quotient`."""
        self.enter()
        self.kernels.quotient(stream.pointer, a.address, b.address, c.address, log2_size)

    def load_key(self, key: Any) -> CudaKey:
        """Upload the five queries; blocks until they are there."""
        stream, buffers = self.stream(), {}
        for name in ("h", "l", "a", "b_g1", "b_g2"):
            query = np.ascontiguousarray(getattr(key, name)).reshape(-1).view(np.uint8)
            buffers[name] = self.buffer(query.nbytes)
            self.upload(stream, buffers[name], query, Memory.PAGEABLE)
        stream.synchronize()
        return CudaKey(**buffers)

    def msm_bytes(self, group: str, count: int) -> int:
        """Bytes of the window sums of one MSM."""
        return int(self.kernels.msm_result_bytes(group, count))

    def msm(
        self, stream: CudaStream, group: str, bases: CudaBuffer, scalars: CudaBuffer, count: int, result: CudaBuffer
    ) -> None:
        """See `base.Device.msm`. Scratch memory belongs to the stream and is made at its first, largest call."""
        point = G1_BYTES if group == "g1" else G2_BYTES
        if bases.nbytes < count * point or scalars.nbytes < count * FR_BYTES:
            raise ValueError(f"msm of {count}: {bases.nbytes // point} bases, {scalars.nbytes // FR_BYTES} scalars")
        self.enter()
        need = self.kernels.msm_scratch_bytes(group, count)
        scratch = self._scratch.get(stream.number)
        if scratch is None or scratch.nbytes < need:
            scratch = self._scratch[stream.number] = self.buffer(need)  # the smaller one is freed by close()
        self.kernels.msm(
            stream.pointer,
            group,
            bases.address,
            scalars.address,
            count,
            scratch.address,
            scratch.nbytes,
            result.address,
        )

    def finish_msm(self, group: str, count: int, result: np.ndarray) -> bytes:
        """See `base.Device.finish_msm`: doublings and additions over the window sums on the host."""
        return self.kernels.finish_msm(group, count, result)

    def spin(self, stream: CudaStream, seconds: float) -> None:
        """A kernel that occupies the compute units for that long and computes nothing."""
        self.enter()
        self.kernels.spin(stream.pointer, seconds)

    def _nothing(self, stream: CudaStream) -> None:
        self.kernels.nothing(stream.pointer)

    def head_start(self, stream: CudaStream) -> None:
        """See `base.Device.head_start`: a millisecond's spin, longer than Python takes to launch a transform."""
        self.spin(stream, HEAD_START_S)

    def ceilings(self) -> dict[str, float | None]:
        """Multiply-adds a second (narrow, wide) and bytes read and written by a copy, best of a few launches."""
        self.enter()
        stream, buffer = self.stream(), self.buffer(2 * CEILING_COPY_BYTES)
        works = self.kernels.ceilings(buffer.address, CEILING_COPY_BYTES)
        rates: dict[str, float | None] = {}
        for name, (amount, launch) in works.items():
            launch(stream.pointer)
            times = []
            for _ in range(PROBES):
                start, _, end = stream.record(), launch(stream.pointer), stream.record()
                end.synchronize()
                times.append(self.cupy.cuda.get_elapsed_time(start.event, end.event) / 1e3)
            rates[name] = amount / min(times)
        self.free(buffer)
        return rates

    def close(self) -> None:
        """Wait for everything and free it."""
        self.enter()
        self.clock.close()
        for stream in self._streams:
            stream.synchronize()
        for buffer in self._buffers:
            self.cupy.cuda.runtime.free(buffer.address)
        self._buffers.clear()
        self._scratch.clear()
