"""The shape of a circuit: sizes, shares, and that the matrices are what the shape says."""

from __future__ import annotations

import numpy as np
import pytest

from cuzkbench import bls12_381 as curve
from cuzkbench.plan import RunPlan
from cuzkbench.prover.circuit import TOLERANCE, Circuit
from cuzkbench.prover.matrices import CONSTANTS, MINUS, PLUS, coefficients, entries

SHARES = [
    (0.0, 0.25),
    (0.25, 0.25),
    (0.5, 0.25),
    (0.75, 0.2),
    (0.75, 0.25),
    (0.75, 0.5),
    (0.9, 0.9),
    (0.95, 0.25),
    (0.3, 1.0),
]


def columns(circuit: Circuit) -> list[set[int]]:
    """The variables that occur in A, in B and in C."""
    found: list[set[int]] = [set(), set(), set()]
    for _, _, matrices in entries(circuit):
        for seen, (_, column, _) in zip(found, matrices, strict=True):
            seen.update(column.tolist())
    return found


@pytest.mark.parametrize(("boolean_share", "b_density"), SHARES)
@pytest.mark.parametrize("log2_size", [10, 14, 20, 27])
def test_shares_are_met_within_two_points(log2_size, boolean_share, b_density):
    circuit = Circuit(log2_size, boolean_share, b_density)
    shape = circuit.shape
    assert abs((1 + shape.selectors + shape.bits) / circuit.variables - boolean_share) <= TOLERANCE
    assert abs(circuit.b_variables / circuit.variables - b_density) <= TOLERANCE
    assert 4 * shape.rounds + shape.selectors + shape.bits + 2 * shape.publics == circuit.constraints == 1 << log2_size


@pytest.mark.parametrize("log2_size", range(8, 28))
def test_every_size_has_the_default_circuit(log2_size):
    circuit = Circuit(log2_size)
    assert abs(circuit.b_variables / circuit.variables - 0.25) <= TOLERANCE
    assert 0.9 < circuit.variables / circuit.constraints < 1.01


@pytest.mark.parametrize(
    "circuit",
    [Circuit(8), Circuit(10, 0.5, 0.25), Circuit(10, 0.75, 0.7), Circuit(10, 0.0, 0.25), Circuit(9, 0.2, 0.6, 150)],
    ids=str,
)
def test_variables_of_b_are_exactly_the_prefix_and_all_variables_are_in_a(circuit):
    in_a, in_b, in_c = columns(circuit)
    assert in_b == set(range(circuit.b_variables))
    assert in_a == set(range(circuit.variables))
    assert in_c < set(range(circuit.variables))


def test_powers_that_are_swapped_into_b_leave_a():
    circuit = Circuit(10, 0.3, 1.0)
    shape = circuit.shape
    in_a, in_b, _ = columns(circuit)
    assert shape.swapped > 0 and in_b == set(range(circuit.b_variables))
    assert set(range(circuit.variables)) - in_a == set(range(shape.swapped_at, shape.swapped_at + shape.swapped))


def test_every_row_is_there_once_and_in_range():
    circuit = Circuit(11)
    for start, stop, (a, _, _) in entries(circuit):
        assert (start, stop) == (0, 2048)
        assert set(a[0].tolist()) == set(range(2048))
        assert a[2].max() < len(coefficients())


def test_coefficients_are_one_minus_one_and_distinct_constants():
    table = [curve.fr_from_montgomery(row.tobytes()) for row in coefficients()]
    assert table[PLUS] == 1 and table[MINUS] == curve.r - 1
    assert len(set(table)) == len(table) == CONSTANTS + 64


@pytest.mark.parametrize("values", [(7,), (28,), (8, 0.75, 0.25, 0), (8, 0.75, 0.25, 127)])
def test_sizes_out_of_range_are_refused(values):
    with pytest.raises(ValueError, match="from"):
        Circuit(*values)


def test_shares_that_cannot_be_met_state_what_can():
    with pytest.raises(ValueError, match=r"b_density 0: 2\^12 .* reach 0\.081 to 0\.999"):
        Circuit(12, 0.75, 0.0)
    with pytest.raises(ValueError, match=r"boolean_share 0\.95: 2\^8 .* reach 0\.004 to 0\.913"):
        Circuit(8, 0.95)
    Circuit(8, 0.91)  # within 2 points of what can be reached


def test_layout_of_a_partition():
    circuit = Circuit(10)
    parts = circuit.slices()
    assert list(parts) == ["a", "b", "c", "w"]
    assert [part.start for part in parts.values()] == [0, 32 << 10, 64 << 10, 96 << 10]
    assert parts["w"].stop == circuit.partition_bytes == 32 * (3 * 1024 + circuit.variables)


def test_fingerprint_follows_the_rows_and_nothing_else():
    assert Circuit(10).fingerprint() == Circuit(10, 0.75, 0.25, 16).fingerprint()
    assert Circuit(10).fingerprint() == Circuit(10, 0.75, 0.2499).fingerprint()  # the same rows
    others = [Circuit(11), Circuit(10, 0.7), Circuit(10, 0.75, 0.3), Circuit(10, 0.75, 0.25, 15)]
    assert len({circuit.fingerprint() for circuit in [Circuit(10), *others]}) == 5


def test_circuit_of_a_plan():
    plan = RunPlan(boolean_share=0.5, b_density=0.3, public_inputs=7).resolve("host", cores=4)
    assert Circuit.of(plan) == Circuit(12, 0.5, 0.3, 7)
    with pytest.raises(ValueError, match="log2_size None"):
        Circuit.of(RunPlan())


def test_entries_of_many_chunks_are_the_rows_of_one(monkeypatch):
    circuit = Circuit(10)
    whole = [matrix.copy() for matrix in next(entries(circuit))[2]]
    monkeypatch.setattr("cuzkbench.prover.matrices._CHUNK", 96)
    parts = [[matrix.copy() for matrix in matrices] for _, _, matrices in entries(circuit)]
    assert len(parts) == 11
    for index, matrix in enumerate(whole):
        assert np.array_equal(np.concatenate([part[index] for part in parts], axis=1), matrix)
