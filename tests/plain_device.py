"""The device contract without a queue: every call does its work before it returns. For tests of what is computed."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from cuzkbench.device import host_math
from cuzkbench.device.base import HostBuffer
from cuzkbench.events import Memory
from cuzkbench.prover import groth16
from cuzkbench.prover.circuit import Circuit
from cuzkbench.prover.keys import ProvingKey


class Buffer:
    def __init__(self, array: np.ndarray) -> None:
        self.array, self.nbytes = array, array.nbytes

    def view(self, offset: int, nbytes: int) -> Buffer:
        return Buffer(self.array[offset : offset + nbytes])


class PlainStream:
    number = 0

    def synchronize(self) -> None:
        """Nothing is ever pending."""


class PlainDevice:
    def host_buffer(self, nbytes: int, memory: Memory) -> HostBuffer:
        return HostBuffer(np.zeros(nbytes, np.uint8), memory)

    def free_host_buffer(self, buffer: HostBuffer) -> None:
        buffer.array = np.zeros(0, np.uint8)

    def download(self, stream: PlainStream, target: np.ndarray, source: Buffer) -> None:
        target[:] = source.array

    def ntt(self, stream, values, log2_size, *, inverse=False, coset=False) -> None:
        host_math.ntt(values.array, log2_size, inverse=inverse, coset=coset)

    def quotient(self, stream, a, b, c, log2_size) -> None:
        host_math.quotient(a.array, b.array, c.array, log2_size)

    def load_key(self, key: ProvingKey) -> SimpleNamespace:
        groups = {query: group for group, query in groth16.QUERIES.values()}
        return SimpleNamespace(**{query: host_math.points(groups[query], getattr(key, query)) for query in groups})

    def msm(self, stream, group, bases, scalars, count, result) -> None:
        result.array[:] = np.frombuffer(host_math.msm(group, bases, scalars.array, count), np.uint8)

    def finish_msm(self, group: str, count: int, result: np.ndarray) -> bytes:
        return result.tobytes()


def slot_of(circuit: Circuit, vectors: np.ndarray) -> groth16.Slot:
    """A slot over a copy of a synthesised partition."""
    sizes = {name: host_math.POINT_BYTES[group] for name, (group, _) in groth16.msms(circuit).items()}
    results = {name: Buffer(np.zeros(size, np.uint8)) for name, size in sizes.items()}
    return groth16.Slot.of(circuit, Buffer(vectors.copy()), results)


def prove(circuit: Circuit, key: ProvingKey, vectors: np.ndarray, r: int, s: int) -> bytes:
    """The proof bytes of a synthesised partition."""
    device = PlainDevice()
    slot = slot_of(circuit, vectors)
    return groth16.prove(device, device.load_key(key), slot, key, PlainStream(), r, s).to_bytes()
