"""Groth16 over BLS12-381: the kernels of one partition as data, the proof that their sums make, and its verification.

Notation and protocol: Groth, "On the Size of Pairing-based Non-interactive Arguments", Eurocrypt 2016, 3.2. The prover
sees the proving key only, the verifier the verifying key only; both do their few group operations with py-arkworks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import py_arkworks_bls12381 as arkworks

from cuzkbench import bls12_381 as curve
from cuzkbench.bls12_381 import FR_BYTES
from cuzkbench.device.base import Device, DeviceBuffer, Stream
from cuzkbench.device.host_math import POINT, points
from cuzkbench.prover.circuit import Circuit
from cuzkbench.prover.keys import ProvingKey, VerifyingKey

Kernel = tuple[str, Callable[[Stream], None]]
QUERIES = {"h": ("g1", "h"), "l": ("g1", "l"), "a": ("g1", "a"), "b1": ("g1", "b_g1"), "b2": ("g2", "b_g2")}
"""The MSMs of a partition in order: group, and the query of the proving key that holds the bases."""


def msms(circuit: Circuit) -> dict[str, tuple[str, int]]:
    """Group and number of bases of each MSM of QUERIES."""
    private = circuit.variables - 1 - circuit.public_inputs
    prefix = circuit.b_variables
    counts = {"h": circuit.constraints, "l": private, "a": circuit.variables, "b1": prefix, "b2": prefix}
    return {name: (group, counts[name]) for name, (group, _) in QUERIES.items()}


def kernels(
    device: Device, key: Any, circuit: Circuit, memory: DeviceBuffer, results: Mapping[str, DeviceBuffer]
) -> list[Kernel]:
    """One partition's kernels in order, as (name, function that queues it on a stream).

    key is what device.load_key gave; memory holds the four vectors, laid out as the host buffer is; results has a
    place for the sum of each MSM of QUERIES. The vectors a, b and c are used up: a ends as the coefficients of h.
    """
    a, b, c, w = (memory.view(part.start, part.stop - part.start) for part in circuit.slices().values())
    private_at = FR_BYTES * (1 + circuit.public_inputs)
    vectors, scalars = {"a": a, "b": b, "c": c}, {"h": a, "l": w.view(private_at, w.nbytes - private_at)}
    ntt = partial(device.ntt, log2_size=circuit.log2_size)

    def sum_of(name: str, group: str, count: int) -> Callable[[Stream], None]:
        bases = getattr(key, QUERIES[name][1])
        return lambda stream: device.msm(stream, group, bases, scalars.get(name, w), count, results[name])

    return [
        *((f"ntt.{name}", partial(ntt, values=values, inverse=True)) for name, values in vectors.items()),
        *((f"coset.{name}", partial(ntt, values=values, coset=True)) for name, values in vectors.items()),
        ("quotient", partial(device.quotient, a=a, b=b, c=c, log2_size=circuit.log2_size)),
        ("ntt.h", partial(ntt, values=a, inverse=True, coset=True)),
        *((f"msm.{name}", sum_of(name, group, count)) for name, (group, count) in msms(circuit).items()),
    ]


@dataclass(frozen=True)
class Proof:
    """Three points as py-arkworks objects."""

    a: Any  # G1
    b: Any  # G2
    c: Any  # G1

    def to_bytes(self) -> bytes:
        """The usual 192 bytes: A, B, C compressed as zcash does."""
        return b"".join(bytes(point.to_compressed_bytes()) for point in (self.a, self.b, self.c))

    @classmethod
    def from_bytes(cls, data: bytes) -> Proof:
        """Raises ValueError where a point is not in its group."""
        if len(data) != 192:
            raise ValueError(f"{len(data)} bytes of proof: 192 are needed")
        read_g1, read_g2 = arkworks.G1Point.from_compressed_bytes, arkworks.G2Point.from_compressed_bytes
        return cls(read_g1(data[:48]), read_g2(data[48:144]), read_g1(data[144:]))


def assemble(key: ProvingKey, sums: Mapping[str, bytes], r: int, s: int) -> Proof:
    """The proof of the five sums of QUERIES (as Device.finish_msm gives them) under the blinding r, s below the order.

    A = alpha + sum_a + r delta; B = beta + sum_b + s delta; C = sum_l + sum_h + s A + r B - r s delta, B in G1 there.
    """
    for name, value in (("r", r), ("s", s)):
        if not 0 <= value < curve.r:
            raise ValueError(f"blinding {name} {value}: from 0 to the group order")
    total = {name: POINT[group].from_xy_bytes_unchecked_le(sums[name]) for name, (group, _) in QUERIES.items()}
    alpha, beta, delta = (points("g1", part)[0] for part in (key.alpha_g1, key.beta_g1, key.delta_g1))
    beta_2, delta_2 = (points("g2", part)[0] for part in (key.beta_g2, key.delta_g2))
    blind_r, blind_s, blind_rs = (_scalar(value % curve.r) for value in (r, s, -r * s))
    a = alpha + total["a"] + delta * blind_r
    b = beta_2 + total["b2"] + delta_2 * blind_s
    b_1 = beta + total["b1"] + delta * blind_s
    return Proof(a, b, total["l"] + total["h"] + a * blind_s + b_1 * blind_r + delta * blind_rs)


def verify(key: VerifyingKey, public: Sequence[int], proof: bytes) -> bool:
    """Whether e(A, B) = e(alpha, beta) e(IC, gamma) e(C, delta), IC = ic_0 + sum of public_i * ic_(i+1).

    False for bytes that are no proof and for inputs outside the field; raises ValueError for a wrong number of them.
    """
    bases = points("g1", key.ic)
    if len(public) != len(bases) - 1:
        raise ValueError(f"{len(public)} public inputs: this key takes {len(bases) - 1}")
    if not all(0 <= value < curve.r for value in public):
        return False
    try:
        parts = Proof.from_bytes(proof)
    except ValueError:
        return False
    inputs = arkworks.G1Point.multiexp_unchecked(bases, [_scalar(value) for value in (1, *public)])
    (alpha,), (beta,) = points("g1", key.alpha_g1), points("g2", key.beta_g2)
    (gamma,), (delta,) = points("g2", key.gamma_g2), points("g2", key.delta_g2)
    left = [-parts.a, alpha, inputs, parts.c]
    return bool(arkworks.GT.pairing_check(left, [parts.b, beta, gamma, delta]))  # GT + GT would add, not multiply


def _scalar(value: int) -> Any:
    return arkworks.Scalar.from_le_bytes(value.to_bytes(32, "little"))
