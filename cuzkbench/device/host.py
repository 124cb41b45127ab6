"""The host as a device, the default and the definition: real arithmetic on one compute engine, an emulated link.

Work is queued on streams and done by three threads, as on a GPU: one computes, one copies each way. Copies really
move the bytes, in chunks that are paced to absolute deadlines. `calibrate` scales the link's rates and the CPU stages
to the measured kernel time, so that their ratios are those of a production prover (measured on an H200, PCIe Gen5).
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np

from cuzkbench import machine
from cuzkbench.bls12_381 import POINT_BYTES
from cuzkbench.device.base import CEILINGS, HostBuffer
from cuzkbench.device.host_streams import Engines, HostSequence, HostStream
from cuzkbench.events import Clock, Lane, Memory

LABEL = "emulated link and CPU stages"
CALIBRATIONS = 3
CHUNK_BYTES = 64 << 10  # at least; a copy is paced in at most 16 chunks, since every sleep overshoots by 0.1 ms
# shares of one partition's kernel time. A partition's copy, by memory:
PINNED_SHARE = 0.13
PAGEABLE_SHARE = {True: 2.4, False: 0.93}  # beside a loaded, an idle CPU
# CPU stages. Register and unregister: 0.11 and 0.07 s per 4 GiB; staging: 38 GB/s by four threads; link: 55.5 GB/s
_LINK_S = (4 << 30) / 55.5e9
CPU_SHARES = {
    "prep": 0.23,
    "finish": 0.17,
    "register": round(PINNED_SHARE * 0.11 / _LINK_S, 3),
    "unregister": round(PINNED_SHARE * 0.07 / _LINK_S, 3),
    "stage": round(PINNED_SHARE * 55.5 / 38, 3),
}
_QUERIES = {"h": "g1", "l": "g1", "a": "g1", "b_g1": "g1", "b_g2": "g2"}


@dataclass(frozen=True)
class HostArray:
    """Device memory of the host device; `nbytes` as the contract says."""

    array: np.ndarray  # uint8, one dimension
    points: Any = None  # of a key's query: what the arithmetic made of the points, once

    @property
    def nbytes(self) -> int:
        """Bytes of this buffer."""
        return self.array.nbytes

    def view(self, offset: int, nbytes: int) -> HostArray:
        """A part of this buffer; raises ValueError outside of it."""
        if offset < 0 or nbytes < 0 or offset + nbytes > self.nbytes:
            raise ValueError(f"view {offset}+{nbytes} of a device buffer of {self.nbytes} bytes")
        return HostArray(self.array[offset : offset + nbytes])


class HostDevice:
    """The host in a GPU's place. `math` holds the arithmetic (device/host_math.py)."""

    kind = "emulated"
    event_clock = Clock.HOST
    ranges = None
    emulates_load = True
    fixed_base = None

    def __init__(self, gpu: int = 0, labels: tuple[str, ...] = (LABEL,), math: Any = None) -> None:
        self.gpu, self.labels = gpu, labels
        self._math = math or import_module("cuzkbench.device.host_math")
        self._emulation: dict[str, Any] = {}  # what `calibrate` gave
        self._engines, self._stream_numbers = Engines(f"gpu {gpu}"), itertools.count()

    def describe(self) -> dict[str, Any]:
        """The header's facts: name and memory."""
        return {"gpu": self.gpu, "device": f"host CPU, {LABEL}", "memory_bytes": machine.host()["memory_bytes"]}

    # -- memory

    def host_buffer(self, nbytes: int, memory: Memory) -> HostBuffer:
        """Touched heap memory under either name: page-locking is emulated by the link's rate."""
        if memory not in (Memory.PAGEABLE, Memory.PINNED):
            raise ValueError(f"host memory {memory}: PAGEABLE or PINNED")
        return HostBuffer(_touched(nbytes, "host"), memory)

    def free_host_buffer(self, buffer: HostBuffer) -> None:
        """Nothing to do: the memory goes with its last reference."""

    def register(self, buffer: HostBuffer) -> None:
        """Mark a PAGEABLE buffer as page-locked; raises ValueError if it is."""
        if buffer.memory is not Memory.PAGEABLE or buffer.handle is not None:
            raise ValueError(f"register: {buffer.memory} memory, {'' if buffer.handle is None else 'already '}locked")
        buffer.handle = "registered"

    def unregister(self, buffer: HostBuffer) -> None:
        """Undo `register`; raises ValueError if it was not registered."""
        if buffer.handle is None:
            raise ValueError("unregister: the buffer is not registered")
        buffer.handle = None

    def buffer(self, nbytes: int) -> HostArray:
        """Device memory of exactly nbytes."""
        return HostArray(_touched(nbytes, "device"))

    def free(self, buffer: HostArray) -> None:
        """Nothing to do: the memory goes with its last reference."""

    def available_bytes(self) -> None:
        """None: device memory is host memory here."""

    # -- streams and copies

    def stream(self) -> HostStream:
        """A new stream."""
        return HostStream(next(self._stream_numbers), self._engines)

    def sequence(
        self, stream: HostStream, steps: list[Callable[[HostStream], None]], *, timed: bool, kernels: bool = False
    ) -> HostSequence:
        """See `base.Device.sequence`; here nothing has to start up."""
        return HostSequence(stream, steps, timed)

    def upload(self, stream: HostStream, target: HostArray, source: np.ndarray, memory: Memory) -> None:
        """Queue a copy for the one engine towards the device: two copies run one after the other."""
        self._copy(stream, Lane.COPY_H2D, target.array, source, memory)

    def download(self, stream: HostStream, target: np.ndarray, source: HostArray) -> None:
        """Queue a copy for the one engine towards the host, at the pinned rate."""
        self._copy(stream, Lane.COPY_D2H, target, source.array, Memory.PINNED)

    def _copy(self, stream: HostStream, lane: Lane, target: np.ndarray, source: np.ndarray, memory: Memory) -> None:
        if source.nbytes > target.nbytes:
            raise ValueError(f"{source.nbytes} bytes into a buffer of {target.nbytes}")
        rate = self._rate(memory) if self._emulation else 0.0
        stream.run(lane, lane.value, f"{source.nbytes} bytes", lambda: _paced_copy(target, source, rate))

    # -- kernels

    def ntt(
        self, stream: HostStream, values: HostArray, log2_size: int, *, inverse: bool = False, coset: bool = False
    ) -> None:
        """See `base.Device.ntt`."""
        work = partial(self._math.ntt, values.array, log2_size, inverse=inverse, coset=coset)
        stream.run(Lane.COMPUTE, "ntt", f"2^{log2_size}", work)

    def ntt_to_reversed(self, stream: HostStream, values: HostArray, log2_size: int) -> None:
        """Forward from natural-order coefficients to bit-reversed values, in place."""
        work = partial(self._math.ntt_to_reversed, values.array, log2_size)
        stream.run(Lane.COMPUTE, "ntt to reversed", f"2^{log2_size}", work)

    def quotient(self, stream: HostStream, a: HostArray, b: HostArray, c: HostArray, log2_size: int) -> None:
        """See `base.Device.quotient`."""
        work = partial(self._math.quotient, a.array, b.array, c.array, log2_size)
        stream.run(Lane.COMPUTE, "quotient", f"2^{log2_size}", work)

    def load_key(self, key: Any) -> SimpleNamespace:
        """The five queries with their points parsed: 4 µs a point in G1."""

        def parsed(name: str, group: str) -> HostArray:
            bases = np.ascontiguousarray(getattr(key, name)).reshape(-1).view(np.uint8)
            return HostArray(bases, self._math.points(group, bases))

        return SimpleNamespace(**{name: parsed(name, group) for name, group in _QUERIES.items()})

    def msm_bytes(self, group: str, count: int) -> int:
        """One affine point."""
        return POINT_BYTES[group]

    def msm(
        self, stream: HostStream, group: str, bases: HostArray, scalars: HostArray, count: int, result: HostArray
    ) -> None:
        """See `base.Device.msm`. Bases that are not a loaded key's are parsed by the call."""

        def work() -> None:
            points = self._math.points(group, bases.array) if bases.points is None else bases.points
            point = self._math.msm(group, points, scalars.array, count)
            result.array[: len(point)] = np.frombuffer(point, np.uint8)

        stream.run(Lane.COMPUTE, f"msm {group}", f"{count} points", work)

    def finish_msm(self, group: str, count: int, result: np.ndarray) -> bytes:
        """The result is the point already."""
        return result[: self.msm_bytes(group, count)].tobytes()

    def spin(self, stream: HostStream, seconds: float) -> None:
        """Not on this device: its kernels are arithmetic, never a wait."""
        raise ValueError("kernels timed:SECONDS: not on the host device, whose kernels are real; take cuda or model")

    # -- emulation

    def calibrate(self, measures: Sequence[Callable[[], int]], nbytes: int, loaded: bool) -> dict[str, Any]:
        """Median of three runs of one worker's kernels; the rates and the stages' lengths follow from it."""
        shares = {memory.value: PINNED_SHARE for memory in (Memory.PINNED, Memory.REGISTERED, Memory.STAGED)}
        shares[Memory.PAGEABLE.value] = PAGEABLE_SHARE[loaded]
        self._emulation = {
            "kernel_ns": round(statistics.median(measures[0]() for _ in range(CALIBRATIONS))),
            "partition_bytes": nbytes,
            "loaded": loaded,
            "transfer_shares": shares,
            "cpu_shares": CPU_SHARES,
        }
        return self._emulation

    def _rate(self, memory: Memory) -> float:
        """Bytes a nanosecond of a copy from or to a kind of memory."""
        scaled = self._emulation
        return float(scaled["partition_bytes"] / (scaled["transfer_shares"][memory.value] * scaled["kernel_ns"]))

    def emulated_ns(self, stage: str, nbytes: int = 0) -> int:
        """The stage's share of the kernel time; for "stage", that of nbytes of a partition."""
        if not self._emulation or stage not in CPU_SHARES:
            return 0
        part = nbytes / self._emulation["partition_bytes"] if nbytes else 1.0
        return round(CPU_SHARES[stage] * part * self._emulation["kernel_ns"])

    def line_rate(self) -> dict[str, float]:
        """The emulated pinned rate, alike both ways, idle and loaded; raises RuntimeError before `calibrate`."""
        if not self._emulation:
            raise RuntimeError("line_rate before calibrate")
        return dict.fromkeys(("H2D", "D2H"), self._rate(Memory.PINNED))

    def driver(self) -> None:
        """None here."""

    def head_start(self, stream: HostStream) -> None:
        """Nothing to do: an operation costs far more here than to queue it."""

    def ceilings(self) -> dict[str, float | None]:
        """Not measured here: they are a GPU's."""
        return dict.fromkeys(CEILINGS)

    def clock_fit(self) -> None:
        """None: one clock."""

    def counters(self) -> dict[str, float]:
        """CPU time of the compute engine so far: KERNEL rows are arithmetic, never a wait."""
        return {"compute.cpu_seconds": self._engines.cpu_ns[Lane.COMPUTE] / 1e9}

    def close(self) -> None:
        """Let the engines end after what is queued."""
        self._engines.close()


def _touched(nbytes: int, where: str) -> np.ndarray:
    """Memory whose pages exist."""
    try:
        array = np.empty(nbytes, np.uint8)
    except MemoryError as error:
        raise MemoryError(f"{nbytes} bytes of {where} memory: {error}") from error
    array.fill(0)
    return array


def _paced_copy(target: np.ndarray, source: np.ndarray, rate: float) -> None:
    """Copy in chunks, each not before its deadline at `rate` bytes a nanosecond (0: as fast as it goes)."""
    start_ns = time.perf_counter_ns()
    chunk = max(CHUNK_BYTES, -(-source.nbytes // 16))
    for offset in range(0, source.nbytes, chunk):
        end = min(offset + chunk, source.nbytes)
        target[offset:end] = source[offset:end]
        if rate:
            wait_ns = start_ns + end / rate - time.perf_counter_ns()
            if wait_ns > 0:
                time.sleep(wait_ns / 1e9)
