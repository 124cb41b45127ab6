"""Synthesis against the matrices, against Python ints, and against flipped values."""

from __future__ import annotations

import random

import numpy as np
import pytest

from cuzkbench import bls12_381 as curve
from cuzkbench.prover.circuit import CHAIN_ROUNDS, Circuit
from cuzkbench.prover.matrices import CONSTANTS, accumulate, coefficients, entries
from cuzkbench.prover.synthesis import public_inputs, synthesise

SEED = 77
CIRCUITS = [
    Circuit(8),
    Circuit(12),
    Circuit(10, 0.0, 0.25),
    Circuit(10, 0.9, 0.9),
    Circuit(10, 0.3, 1.0),
    Circuit(9, 0.2, 0.6, 150),
    Circuit(8, 0.75, 0.25, 1),
    Circuit(13, 0.5, 0.25, 3),
]


def made(circuit: Circuit, seed: int = SEED, partition: int = 0, threads: int = 1) -> np.ndarray:
    out = np.full(circuit.partition_bytes, 0xA5, np.uint8)  # as a buffer that was used before
    synthesise(circuit, seed, partition, out, threads)
    return out


def vector(circuit: Circuit, buffer: np.ndarray, name: str) -> list[int]:
    data = buffer[circuit.slices()[name]].tobytes()
    return [curve.fr_from_montgomery(data[at : at + 32]) for at in range(0, len(data), 32)]


def satisfied(circuit: Circuit, buffer: np.ndarray) -> bool:
    """Whether a, b and c are A, B and C times the witness, and a * b == c in every row."""
    *vectors, w = (buffer[part].view(np.uint64).reshape(-1, 4) for part in circuit.slices().values())
    a, b, c = (vector(circuit, buffer, name) for name in "abc")
    if any((x * y - z) % curve.r for x, y, z in zip(a, b, c, strict=True)) or vector(circuit, buffer, "w")[0] != 1:
        return False
    expected = [np.zeros_like(rows) for rows in vectors]
    for _, _, matrices in entries(circuit):
        for target, (row, column, factor) in zip(expected, matrices, strict=True):
            accumulate(target, row, w, column, factor, coefficients())
    return all(np.array_equal(target, rows) for target, rows in zip(expected, vectors, strict=True))


@pytest.mark.parametrize("circuit", CIRCUITS, ids=str)
def test_synthesis_vs_matrices(circuit):
    assert satisfied(circuit, made(circuit))


@pytest.mark.parametrize("circuit", [Circuit(8), Circuit(10, 0.3, 1.0)], ids=str)
def test_a_times_b_is_c_vs_python_int(circuit):
    a, b, c = (vector(circuit, made(circuit), name) for name in "abc")
    assert all((x * y - z) % curve.r == 0 for x, y, z in zip(a, b, c, strict=True))


def test_chains_are_x_to_the_fifth_vs_python_int():
    circuit = Circuit(12)
    shape, w = circuit.shape, vector(circuit, made(circuit), "w")
    constants = [curve.fr_from_montgomery(row.tobytes()) for row in coefficients()[CONSTANTS:]]
    ends = []
    for chain in range(shape.chains):
        first = chain * CHAIN_ROUNDS
        state = w[shape.states_at + first]
        for round_ in range(first, min(first + CHAIN_ROUNDS, shape.rounds)):
            assert w[shape.states_at + round_] == state
            state = pow(state + constants[round_ - first], 5, curve.r)
        assert w[shape.last_at + chain] == state
        ends.append(state)
    assert w[0] == 1
    assert w[1 : 1 + shape.chains] == ends  # fewer chains than public inputs: one each
    assert public_inputs(circuit, made(circuit)) == w[1 : 1 + circuit.public_inputs]


def test_public_inputs_are_sums_of_chains_where_there_are_more_chains():
    circuit = Circuit(13, 0.5, 0.25, 3)
    shape, buffer = circuit.shape, made(circuit)
    ends = vector(circuit, buffer, "w")[shape.last_at :]
    assert len(ends) == shape.chains > 3
    assert public_inputs(circuit, buffer) == [sum(ends[public::3]) % curve.r for public in range(3)]


def test_shares_of_the_witness_as_asked():
    circuit = Circuit(14)
    w = vector(circuit, made(circuit), "w")
    assert abs(sum(value < 2 for value in w) / len(w) - 0.75) < 0.02
    ones = sum(value == 1 for value in w) / sum(value < 2 for value in w)
    assert 0.1 < ones < 0.6  # neither all 0 nor all 1


def test_one_flipped_bit_anywhere_fails():
    circuit = Circuit(8)
    good, rng = made(circuit), random.Random(SEED)
    assert satisfied(circuit, good)
    for part in circuit.slices().values():
        for at in [part.start, part.stop - 32, *(rng.randrange(part.start, part.stop) for _ in range(60))]:
            bad = good.copy()
            bad[at] ^= 1 << rng.randrange(8)
            assert not satisfied(circuit, bad), at


def test_a_consistent_product_over_a_wrong_witness_fails():
    """a * b == c alone would not notice: all zeros satisfy it."""
    circuit = Circuit(8)
    bad = made(circuit)
    bad[: circuit.slices()["w"].start] = 0
    assert not satisfied(circuit, bad)
    assert not satisfied(circuit, np.zeros(circuit.partition_bytes, np.uint8))


def test_witness_follows_from_seed_and_partition_whatever_the_threads():
    circuit = Circuit(12)
    first = made(circuit)
    for threads in (1, 2, 3, 7):
        assert np.array_equal(first, made(circuit, threads=threads)), threads
    others = [made(circuit, partition=1), made(circuit, seed=SEED + 1), made(circuit, seed=-1)]
    inputs = {tuple(public_inputs(circuit, buffer)) for buffer in [first, *others]}
    assert len(inputs) == 4 and all(satisfied(circuit, buffer) for buffer in others)


def test_bits_restart_right_in_every_thread():
    """A thread that starts in the middle looks back for the last selector that is 0."""
    circuit = Circuit(10, 0.9, 0.25)
    for seed in range(20):
        assert np.array_equal(made(circuit, seed), made(circuit, seed, threads=31)), seed


def test_a_buffer_of_another_size_is_refused():
    with pytest.raises(ValueError, match="a partition of this circuit takes"):
        synthesise(Circuit(8), SEED, 0, np.zeros(32, np.uint8))
