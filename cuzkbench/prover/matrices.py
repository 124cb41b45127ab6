"""The rows of a circuit as coordinate lists, for key generation and for checking what `synthesis.py` computes.

An entry is (row, variable, coefficient); coefficients are indices into one small table: +1, -1, the round constants.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from cuzkbench.field import FR_ZERO, add, fr, load, mul, store, sub
from cuzkbench.numba_cache import compiled
from cuzkbench.prover.circuit import CHAIN_ROUNDS, Circuit, Shape

PLUS, MINUS, CONSTANTS = 0, 1, 2
"""Indices of the coefficient table; the constant of round g of a chain is at CONSTANTS + g % CHAIN_ROUNDS."""
_CHUNK = 1 << 18  # rows at a time: 12 MB of entries


@lru_cache(maxsize=1)
def coefficients() -> np.ndarray:
    """The coefficient table, Montgomery limbs (66 x 4): constants are hashes of their number, nothing up the sleeve."""
    digests = (hashlib.sha256(f"cuzkbench round {number}".encode()).digest() for number in range(CHAIN_ROUNDS))
    values = [1, -1, *(int.from_bytes(digest, "little") for digest in digests)]
    return np.array([fr(value) for value in values], np.uint64)


@compiled
def selector_of(bit: int, shape: Shape) -> int:
    """Which selector the row of a bit uses: a fixed order that differs from one run of selectors to the next."""
    return (bit ^ (bit >> 6)) % shape.selectors


@compiled
def power_column(power: int, shape: Shape) -> int:
    """Variable of a power: 3 a round, t2, t3, t4."""
    return shape.swapped_at + power if power < shape.swapped else shape.powers_at + power - shape.swapped


@compiled
def bit_column(bit: int, shape: Shape) -> int:
    """Variable of a bit."""
    return shape.dense_at + bit if bit < shape.dense else shape.bits_at + bit - shape.dense


@compiled
def next_state_column(round_: int, shape: Shape) -> int:
    """Variable of the state that a round ends in: the last of its chain, or the next round's first."""
    if round_ % CHAIN_ROUNDS == CHAIN_ROUNDS - 1 or round_ == shape.rounds - 1:
        return shape.last_at + round_ // CHAIN_ROUNDS
    return shape.states_at + round_ + 1


@compiled
def _put(lists: np.ndarray, used: np.ndarray, matrix: int, row: int, column: int, value: int) -> None:
    at = used[matrix]
    lists[matrix, 0, at], lists[matrix, 1, at], lists[matrix, 2, at] = row, column, value
    used[matrix] = at + 1


@compiled
def _hash_row(shape: Shape, row: int, lists: np.ndarray, used: np.ndarray) -> None:
    round_, step = row >> 2, row & 3
    power = 3 * round_ + step - 1  # the power that this row multiplies by t; none in step 0
    swapped = step > 0 and power < shape.swapped
    for matrix in range(2):
        if step == 0 or swapped == (matrix == 0):
            _put(lists, used, matrix, row, shape.states_at + round_, PLUS)
            _put(lists, used, matrix, row, 0, CONSTANTS + round_ % CHAIN_ROUNDS)
        else:
            _put(lists, used, matrix, row, power_column(power, shape), PLUS)
    _put(lists, used, 2, row, power_column(power + 1, shape) if step < 3 else next_state_column(round_, shape), PLUS)


@compiled
def _bit_row(shape: Shape, row: int, bit: int, lists: np.ndarray, used: np.ndarray) -> None:
    before = bit_column(bit - 1, shape) if bit else shape.selectors_at
    _put(lists, used, 0, row, 0, PLUS)
    _put(lists, used, 0, row, before, MINUS)
    _put(lists, used, 1, row, shape.selectors_at + selector_of(bit, shape), PLUS)
    if 0 < bit <= shape.dense:
        _put(lists, used, 1, row, before, PLUS)
    _put(lists, used, 2, row, bit_column(bit, shape), PLUS)


@compiled
def _public_row(shape: Shape, row: int, public: int, zero: bool, lists: np.ndarray, used: np.ndarray) -> None:
    _put(lists, used, 0, row, 1 + public if zero else 0, PLUS)
    if not zero:
        _put(lists, used, 1, row, 1 + public, PLUS)
    for chain in range(public, shape.chains, shape.publics):
        _put(lists, used, 0 if zero else 2, row, shape.last_at + chain, PLUS)
    if not zero and public >= shape.chains:
        _put(lists, used, 2, row, shape.states_at + public % shape.rounds, PLUS)
    if zero and public == 0 and shape.bits:
        _put(lists, used, 0, row, bit_column(shape.bits - 1, shape), PLUS)


@compiled
def _entries(shape: Shape, start: int, stop: int, lists: np.ndarray) -> np.ndarray:
    """Fill lists (matrix; row, column, coefficient; entry) for rows start..stop; returns how many of each matrix."""
    used = np.zeros(3, np.int64)
    selector_rows = 4 * shape.rounds
    bit_rows = selector_rows + shape.selectors
    public_rows = bit_rows + shape.bits
    zero_rows = public_rows + shape.publics
    for row in range(start, stop):
        if row < selector_rows:
            _hash_row(shape, row, lists, used)
        elif row < bit_rows:
            column = shape.selectors_at + row - selector_rows
            _put(lists, used, 0, row, column, PLUS)
            _put(lists, used, 1, row, 0, PLUS)
            _put(lists, used, 1, row, column, MINUS)
        elif row < public_rows:
            _bit_row(shape, row, row - bit_rows, lists, used)
        else:
            zero = row >= zero_rows
            _public_row(shape, row, row - (zero_rows if zero else public_rows), zero, lists, used)
    return used


def entries(circuit: Circuit) -> Iterator[tuple[int, int, list[np.ndarray]]]:
    """Chunks of rows: first row, row after the last, and for A, B and C an array (row, variable, coefficient; entry).

    The arrays are good until the next chunk is asked for.
    """
    shape = circuit.shape
    lists = np.empty((3, 3, 2 * min(_CHUNK, shape.constraints) + shape.chains + 1), np.int64)
    for start in range(0, shape.constraints, _CHUNK):
        stop = min(start + _CHUNK, shape.constraints)
        used = _entries(shape, start, stop, lists)
        yield start, stop, [lists[matrix, :, : used[matrix]] for matrix in range(3)]


@compiled
def accumulate(
    target: np.ndarray, at: np.ndarray, source: np.ndarray, of: np.ndarray, factors: np.ndarray, table: np.ndarray
) -> None:
    """target[at[i]] += source[of[i]] * table[factors[i]] for all i, over rows of Fr."""
    for index in range(at.shape[0]):
        total, value = load(target, at[index], FR_ZERO), load(source, of[index], FR_ZERO)
        if factors[index] == PLUS:
            total = add(total, value)
        elif factors[index] == MINUS:
            total = sub(total, value)
        else:
            total = add(total, mul(value, load(table, factors[index], FR_ZERO)))
        store(target, at[index], total)
