"""Groth16: proofs are accepted, and everything that could be wrong with one is noticed."""

from __future__ import annotations

import dataclasses

import numpy as np
import py_arkworks_bls12381 as arkworks
import pytest

from cuzkbench import bls12_381 as curve
from cuzkbench.prover import groth16, keys
from cuzkbench.prover.circuit import Circuit
from cuzkbench.prover.synthesis import public_inputs, synthesise
from tests.plain_device import Slot, prove

KEY_SEED, SEED, R, S = 3, 11, 0x1234567, curve.r - 5
CIRCUIT = Circuit(8)


@pytest.fixture(scope="module")
def pair() -> tuple[keys.ProvingKey, keys.VerifyingKey]:
    return keys.generate(CIRCUIT, KEY_SEED)


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    out = np.zeros(CIRCUIT.partition_bytes, np.uint8)
    synthesise(CIRCUIT, SEED, 0, out)
    return out


@pytest.fixture(scope="module")
def public(vectors) -> list[int]:
    return public_inputs(CIRCUIT, vectors)


@pytest.fixture(scope="module")
def proof(pair, vectors) -> bytes:
    return prove(CIRCUIT, pair[0], vectors, R, S)


@pytest.mark.parametrize(
    "circuit",
    [Circuit(9), Circuit(10, 0.3, 1.0), Circuit(10, 0.0, 0.25), Circuit(9, 0.2, 0.6, 150), Circuit(8, 0.5, 0.4, 1)],
    ids=str,
)
def test_proofs_of_every_kind_of_circuit_are_accepted(circuit):
    proving, verifying = keys.generate(circuit, KEY_SEED)
    for partition in range(2):
        buffer = np.zeros(circuit.partition_bytes, np.uint8)
        synthesise(circuit, SEED, partition, buffer)
        inputs = public_inputs(circuit, buffer)
        made = prove(circuit, proving, buffer, R, S)
        assert groth16.verify(verifying, inputs, made)
        assert not groth16.verify(verifying, [*inputs[:-1], (inputs[-1] + 1) % curve.r], made)


def test_changing_any_public_input_is_rejected(pair, public, proof):
    assert groth16.verify(pair[1], public, proof)
    for index in range(len(public)):
        wrong = list(public)
        wrong[index] = (wrong[index] + 1) % curve.r
        assert not groth16.verify(pair[1], wrong, proof), index


def test_the_proof_of_one_partition_is_no_proof_of_another(pair, proof):
    other = np.zeros(CIRCUIT.partition_bytes, np.uint8)
    synthesise(CIRCUIT, SEED, 1, other)
    assert not groth16.verify(pair[1], public_inputs(CIRCUIT, other), proof)


def test_changing_one_bit_of_the_proof_is_rejected(pair, public, proof):
    for at in range(0, 192, 5):
        wrong = bytearray(proof)
        wrong[at] ^= 1
        assert not groth16.verify(pair[1], public, bytes(wrong)), at


@pytest.mark.parametrize("query", ["h", "l", "a", "b_g1", "b_g2"])
def test_changing_one_base_of_a_query_is_rejected(pair, vectors, public, query):
    """At a place whose scalar is not 0, as 0 * anything is the same."""
    size = 192 if query == "b_g2" else 96
    generator = (
        curve.g2_to_montgomery(curve.G2_GENERATOR) if size == 192 else curve.g1_to_montgomery(curve.G1_GENERATOR)
    )
    first = 1 + CIRCUIT.public_inputs if query == "l" else 0  # of the witness; the states there are random
    index = 5 if query == "h" else CIRCUIT.shape.states_at + 3 - first
    bases = getattr(pair[0], query).copy()
    bases[size * index : size * (index + 1)] = np.frombuffer(generator, np.uint8)
    changed = dataclasses.replace(pair[0], **{query: bases})
    assert not groth16.verify(pair[1], public, prove(CIRCUIT, changed, vectors, R, S))


@pytest.mark.parametrize("single", ["alpha_g1", "beta_g1", "beta_g2", "delta_g1", "delta_g2"])
def test_changing_one_single_of_the_key_is_rejected(pair, vectors, public, single):
    generator = curve.g1_to_montgomery(curve.G1_GENERATOR)
    if single.endswith("g2"):
        generator = curve.g2_to_montgomery(curve.G2_GENERATOR)
    changed = dataclasses.replace(pair[0], **{single: np.frombuffer(generator, np.uint8).copy()})
    assert not groth16.verify(pair[1], public, prove(CIRCUIT, changed, vectors, R, S))


@pytest.mark.parametrize("index", [0, 77, 254])
def test_changing_one_coefficient_of_h_is_rejected(pair, vectors, public, index):
    slot = Slot(CIRCUIT, pair[0], vectors)
    for name, queue in slot.kernels:
        queue(None)
        if name == "ntt.h":
            slot.a[32 * index] ^= 1
    sums = {name: result.array.tobytes() for name, result in slot.results.items()}
    assert not groth16.verify(pair[1], public, groth16.assemble(pair[0], sums, R, S).to_bytes())


@pytest.mark.parametrize("name", ["a", "b", "c", "w"])
def test_changing_one_value_of_a_vector_is_rejected(pair, vectors, public, name):
    changed = vectors.copy()
    changed[CIRCUIT.slices()[name].start + 32 * (CIRCUIT.shape.states_at + 1)] ^= 1
    assert not groth16.verify(pair[1], public, prove(CIRCUIT, pair[0], changed, R, S))


def test_quotient_is_a_polynomial_of_degree_n_minus_2(pair, vectors):
    """So the coefficient of the highest power, last in bit-reversed order too, is 0."""
    slot = Slot(CIRCUIT, pair[0], vectors)
    for name, queue in slot.kernels:
        if name.startswith("msm."):
            break
        queue(None)
    coefficients = slot.a.reshape(-1, 32)
    assert not coefficients[-1].any() and coefficients[:-1].any(axis=1).all()


def test_proof_bytes_decompress_with_arkworks(proof):
    assert len(proof) == 192
    a, b, c = (
        arkworks.G1Point.from_compressed_bytes(proof[:48]),
        arkworks.G2Point.from_compressed_bytes(proof[48:144]),
        arkworks.G1Point.from_compressed_bytes(proof[144:]),
    )
    assert a.is_in_subgroup() and b.is_in_subgroup() and c.is_in_subgroup()
    assert proof[0] & 0x80 and proof[48] & 0x80 and proof[144] & 0x80  # zcash: the compressed flag
    assert groth16.Proof.from_bytes(proof).to_bytes() == proof


def test_blinding_changes_the_proof_and_not_its_truth(pair, vectors, public, proof):
    proofs = {proof}
    for r, s in ((0, 0), (1, 0), (0, 1), (curve.r - 1, curve.r - 1)):
        made = prove(CIRCUIT, pair[0], vectors, r, s)
        assert groth16.verify(pair[1], public, made)
        proofs.add(made)
    assert len(proofs) == 5
    assert prove(CIRCUIT, pair[0], vectors, R, S) == proof
    with pytest.raises(ValueError, match="blinding s"):
        prove(CIRCUIT, pair[0], vectors, 0, curve.r)


def test_kernels_are_named_in_order(pair, vectors):
    names = [name for name, _ in Slot(CIRCUIT, pair[0], vectors).kernels]
    assert names == [
        *("ntt.a", "ntt.b", "ntt.c", "coset.a", "coset.b", "coset.c", "quotient", "ntt.h"),
        *("msm.h", "msm.l", "msm.a", "msm.b1", "msm.b2"),
    ]


def test_key_has_a_base_for_every_scalar(pair):
    for name, (group, count) in groth16.msms(CIRCUIT).items():
        bases = getattr(pair[0], groth16.QUERIES[name][1])
        assert bases.nbytes == count * curve.POINT_BYTES[group], name


def test_what_is_no_proof_or_no_input_is_rejected(pair, public, proof):
    for wrong in (b"", proof[:-1], proof + b"\0", bytes(192), b"\xff" * 192, proof[:48] * 4):
        assert not groth16.verify(pair[1], public, wrong)
    assert not groth16.verify(pair[1], [public[0] + curve.r, *public[1:]], proof)  # the same number mod r
    assert not groth16.verify(pair[1], [-1, *public[1:]], proof)
    for wrong in (public[:-1], [*public, 0], []):
        with pytest.raises(ValueError, match="this key takes 16"):
            groth16.verify(pair[1], wrong, proof)


def test_a_point_outside_the_subgroup_is_rejected(pair, public, proof):
    """A point of the cofactor's order pairs to 1, so C plus one would verify: the same proof in other bytes."""
    y = pow(4**3 + 4, (curve.p + 1) // 4, curve.p)
    assert y * y % curve.p == 4**3 + 4
    point = arkworks.G1Point.from_xy_bytes_unchecked_be((4).to_bytes(48, "big") + y.to_bytes(48, "big"))
    minus_one = arkworks.Scalar.from_le_bytes((curve.r - 1).to_bytes(32, "little"))
    torsion = point + point * minus_one  # r times the point
    assert torsion != arkworks.G1Point.identity() and not torsion.is_in_subgroup()
    moved = arkworks.G1Point.from_compressed_bytes(proof[144:]) + torsion
    assert not groth16.verify(pair[1], public, proof[:144] + bytes(moved.to_compressed_bytes()))
