"""The device contract without a queue: every call does its work before it returns. For tests of what is computed."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from cuzkbench.bls12_381 import POINT_BYTES
from cuzkbench.device import host_math
from cuzkbench.prover import groth16
from cuzkbench.prover.circuit import Circuit
from cuzkbench.prover.keys import ProvingKey


class Buffer:
    def __init__(self, array: np.ndarray) -> None:
        self.array, self.nbytes = array, array.nbytes

    def view(self, offset: int, nbytes: int) -> Buffer:
        return Buffer(self.array[offset : offset + nbytes])


class PlainDevice:
    def ntt(self, stream, values, log2_size, *, inverse=False, coset=False) -> None:
        host_math.ntt(values.array, log2_size, inverse=inverse, coset=coset)

    def quotient(self, stream, a, b, c, log2_size) -> None:
        host_math.quotient(a.array, b.array, c.array, log2_size)

    def load_key(self, key: ProvingKey) -> SimpleNamespace:
        groups = {query: group for group, query in groth16.QUERIES.values()}
        return SimpleNamespace(**{query: host_math.points(groups[query], getattr(key, query)) for query in groups})

    def msm(self, stream, group, bases, scalars, count, result) -> None:
        result.array[:] = np.frombuffer(host_math.msm(group, bases, scalars.array, count), np.uint8)


class Slot:
    """A copy of a synthesised partition as device memory, the kernels over it, and a place for each sum."""

    def __init__(self, circuit: Circuit, key: ProvingKey, vectors: np.ndarray) -> None:
        device, memory = PlainDevice(), Buffer(vectors.copy())
        groups = {name: group for name, (group, _) in groth16.QUERIES.items()}
        self.results = {name: Buffer(np.zeros(POINT_BYTES[group], np.uint8)) for name, group in groups.items()}
        self.a = memory.array[circuit.slices()["a"]]
        self.kernels = groth16.kernels(device, device.load_key(key), circuit, memory, self.results)


def prove(circuit: Circuit, key: ProvingKey, vectors: np.ndarray, r: int, s: int) -> bytes:
    """The proof bytes of a synthesised partition."""
    slot = Slot(circuit, key, vectors)
    for _, queue in slot.kernels:
        queue(None)
    return groth16.assemble(key, {name: sum_.array.tobytes() for name, sum_ in slot.results.items()}, r, s).to_bytes()
