"""The device contract: buffers, streams, events, copies, and the four kernels that a Groth16 partition needs.

`host.py` defines what each call means, `cuda.py` is the fast one. Everything that takes a stream only queues work
and returns; work on one stream runs in order, work on two streams overlaps unless an event joins them.

Field elements are in Montgomery form, little-endian: Fr 32 bytes (R = 2^256), Fp 48 bytes (R = 2^384). An affine
G1 point is x, y (96 bytes), a G2 point x.c0, x.c1, y.c0, y.c1 (192 bytes); infinity is all zero bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from cuzkbench.events import Memory

CEILINGS = ("imad_per_s", "wide_mad_per_s", "copy_bytes_per_s")  # what `ceilings` measures on a GPU


class Event(Protocol):
    """A point in a stream's work."""

    def synchronize(self) -> None:
        """Block the calling thread until the stream has passed the event; releases the GIL."""

    def time_ns(self) -> int:
        """When the stream passed it, in `time.perf_counter_ns` terms; synchronises first."""


class Stream(Protocol):
    """An ordered queue of device work. `number` is unique on its device."""

    number: int

    def record(self) -> Event:
        """An event after everything queued so far."""

    def wait(self, event: Event) -> None:
        """Hold later work of this stream until the event has passed, without blocking the caller."""

    def synchronize(self) -> None:
        """Block the calling thread until all queued work is done; raises DeviceError of a failed operation."""


class Sequence(Protocol):
    """Work that is queued alike again and again, with marks around its steps."""

    def prepare(self) -> None:
        """Do what only the first launch needs."""

    def launch(self) -> None:
        """Queue all steps on the sequence's stream."""

    def times_ns(self) -> list[int]:
        """When the last launch passed its marks, one more than steps, once synchronised; empty if untimed."""


class DeviceBuffer(Protocol):
    """Device memory."""

    nbytes: int

    def view(self, offset: int, nbytes: int) -> DeviceBuffer:
        """A part of this buffer, sharing its memory."""


@dataclass
class HostBuffer:
    """Host memory of one kind, as bytes. `handle` belongs to the device that made it."""

    array: np.ndarray  # uint8, one dimension
    memory: Memory
    handle: Any = None


class Device(Protocol):
    """One GPU, or the host in its place."""

    kind: str  # "cuda" or "emulated": the header's device_kind
    gpu: int
    labels: tuple[str, ...]  # sentences that every chart of a run on this device must show

    def describe(self) -> dict[str, Any]:
        """What the header's gpus list says of it: device, memory_bytes, and what else matters."""

    def host_buffer(self, nbytes: int, memory: Memory) -> HostBuffer:
        """PAGEABLE or PINNED host memory of exactly nbytes; raises MemoryError with the bytes needed."""

    def free_host_buffer(self, buffer: HostBuffer) -> None:
        """Give a buffer of `host_buffer` back to the system."""

    def register(self, buffer: HostBuffer) -> None:
        """Page-lock a PAGEABLE buffer in place."""

    def unregister(self, buffer: HostBuffer) -> None:
        """Undo `register`."""

    def buffer(self, nbytes: int) -> DeviceBuffer:
        """Device memory of exactly nbytes; raises MemoryError with the bytes needed."""

    def free(self, buffer: DeviceBuffer) -> None:
        """Free a buffer of `buffer` that no queued work uses any more."""

    def stream(self) -> Stream:
        """A new stream."""

    def sequence(
        self, stream: Stream, steps: list[Callable[[Stream], None]], *, timed: bool, kernels: bool = False
    ) -> Sequence:
        """Steps that queue work on the stream, each time the same; they ran once before the first launch.

        kernels: they occupy the compute units, and what starting them costs is not to count as the first one's time.
        """

    def upload(self, stream: Stream, target: DeviceBuffer, source: np.ndarray, memory: Memory) -> None:
        """Copy host to device. With PAGEABLE memory the call may block, as the driver's does."""

    def download(self, stream: Stream, target: np.ndarray, source: DeviceBuffer) -> None:
        """Copy device to host, into memory of `host_buffer(…, PINNED)`."""

    def ntt(
        self, stream: Stream, values: DeviceBuffer, log2_size: int, *, inverse: bool = False, coset: bool = False
    ) -> None:
        """In place. Forward: bit-reversed coefficients to natural-order values; inverse: natural to bit-reversed.

        coset: forward evaluates on g*H, inverse interpolates from it (g = 7, the field's generator). So inverse,
        then coset forward, needs no reversal between, and the quotient comes out in bit-reversed order, the order
        of the key's h query.
        """

    def ntt_to_reversed(self, stream: Stream, values: DeviceBuffer, log2_size: int) -> None:
        """In place, forward from natural-order coefficients to bit-reversed values: for benchmarks alone."""

    def quotient(self, stream: Stream, a: DeviceBuffer, b: DeviceBuffer, c: DeviceBuffer, log2_size: int) -> None:
        """a = (a*b - c) / Z pointwise, where Z = g^n - 1 is the vanishing polynomial's value on the coset."""

    def load_key(self, key: Any) -> Any:
        """Put a proving key's five queries into device memory: an object with DeviceBuffers h, l, a, b_g1, b_g2."""

    def msm_bytes(self, group: str, count: int) -> int:
        """Size of the result of `msm` (group "g1" or "g2"): a few points in the device's own form."""

    def msm(
        self, stream: Stream, group: str, bases: DeviceBuffer, scalars: DeviceBuffer, count: int, result: DeviceBuffer
    ) -> None:
        """result = sum of scalars[i] * bases[i]; scalars in Montgomery form, both of at least count elements.

        Two calls on different streams of one device must not share scratch memory in flight.
        """

    def finish_msm(self, group: str, count: int, result: np.ndarray) -> bytes:
        """The downloaded result as an affine point: canonical little-endian x, y (G2: c0 before c1), or zeros."""

    def head_start(self, stream: Stream) -> None:
        """Keep a stream busy while the caller queues what it is about to time, so that launches do not count."""

    def ceilings(self) -> dict[str, float | None]:
        """The rates of `CEILINGS` measured now, None where they do not apply."""

    def spin(self, stream: Stream, seconds: float) -> None:
        """Occupy the compute units for that long (`--kernels timed`); raises ValueError where unsupported."""

    def close(self) -> None:
        """Free everything and stop the device's threads."""
