"""Synthesis: one partition's witness and its a, b and c vectors, straight into the buffer that the memory policy gives.

The rows are regular (`circuit.py`), so the values of each are computed directly, chains and runs of bits in parallel;
the tests compute them a second time from the matrices.
"""

from __future__ import annotations

import hashlib
from functools import partial

import numpy as np

from cuzkbench.bls12_381 import fr_from_montgomery
from cuzkbench.field import FR_ONE, FR_ZERO, add, fr, load, mul, rows, store
from cuzkbench.numba_cache import compiled, spread
from cuzkbench.prover.circuit import CHAIN_ROUNDS, Circuit, Shape
from cuzkbench.prover.matrices import CONSTANTS, bit_column, coefficients, next_state_column, power_column, selector_of

_FR_TWO = fr(2)


@compiled
def _mixed(key: np.uint64, index: int) -> np.uint64:
    """A pseudo-random word of a key and an index (SplitMix64, Steele, Lea and Flood 2014)."""
    word = key + np.uint64(index) * np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@compiled
def _hash_chains(
    vectors: tuple[np.ndarray, ...], shape: Shape, keys: tuple[np.uint64, ...], table: np.ndarray, start: int, stop: int
) -> None:
    """Rows, states and powers of chains start..stop. Cost: 4 products a round."""
    a, b, c, w = vectors
    for chain in range(start, stop):
        first = chain * CHAIN_ROUNDS
        top = _mixed(keys[3], chain) & np.uint64((1 << 62) - 1)  # below 2^254, so below r
        state = (_mixed(keys[0], chain), _mixed(keys[1], chain), _mixed(keys[2], chain), top)
        store(w, shape.states_at + first, state)
        for round_ in range(first, min(first + CHAIN_ROUNDS, shape.rounds)):
            t = add(state, load(table, CONSTANTS + round_ - first, FR_ONE))
            factor = t
            for step in range(4):
                row, power = 4 * round_ + step, 3 * round_ + step
                swapped = step > 0 and power - 1 < shape.swapped
                product = mul(factor, t)
                store(a, row, t if swapped else factor)
                store(b, row, factor if swapped else t)
                store(c, row, product)
                store(w, power_column(power, shape) if step < 3 else next_state_column(round_, shape), product)
                factor = product
            state = factor


@compiled
def _bits(vectors: tuple[np.ndarray, ...], shape: Shape, selectors: np.uint64, start: int, stop: int) -> None:
    """Rows and values of bits start..stop; a selector that is 0 makes its bit 0 whatever came before."""
    a, b, c, w = vectors
    first = start
    while first > 0 and selectors >> np.uint64(selector_of(first - 1, shape)) & np.uint64(1):
        first -= 1
    before = False if first else bool(selectors & np.uint64(1))  # before bit 0 stands selector 0
    for bit in range(first, stop):
        selected = bool(selectors >> np.uint64(selector_of(bit, shape)) & np.uint64(1))
        value = selected and not before
        if bit >= start:
            row = 4 * shape.rounds + shape.selectors + bit
            both = selected and before and 0 < bit <= shape.dense
            either = selected or (before and 0 < bit <= shape.dense)
            store(a, row, FR_ZERO if before else FR_ONE)
            store(b, row, _FR_TWO if both else (FR_ONE if either else FR_ZERO))
            store(c, row, FR_ONE if value else FR_ZERO)
            store(w, bit_column(bit, shape), FR_ONE if value else FR_ZERO)
        before = value


@compiled
def _selectors_and_publics(vectors: tuple[np.ndarray, ...], shape: Shape, selectors: np.uint64) -> None:
    """The rest, once the chains and bits are there."""
    a, b, c, w = vectors
    store(w, 0, FR_ONE)
    for selector in range(shape.selectors):
        row, is_one = 4 * shape.rounds + selector, selectors >> np.uint64(selector) & np.uint64(1)
        store(w, shape.selectors_at + selector, FR_ONE if is_one else FR_ZERO)
        store(a, row, FR_ONE if is_one else FR_ZERO)
        store(b, row, FR_ZERO if is_one else FR_ONE)
        store(c, row, FR_ZERO)
    for public in range(shape.publics):
        value = FR_ZERO
        for chain in range(public, shape.chains, shape.publics):
            value = add(value, load(w, shape.last_at + chain, FR_ONE))
        outputs = value
        if public >= shape.chains:
            value = load(w, shape.states_at + public % shape.rounds, FR_ONE)
        if public == 0 and shape.bits:
            outputs = add(outputs, load(w, bit_column(shape.bits - 1, shape), FR_ONE))
        store(w, 1 + public, value)
        row = shape.constraints - 2 * shape.publics + public
        store(a, row, FR_ONE)
        store(b, row, value)
        store(c, row, value)
        store(a, row + shape.publics, add(value, outputs))
        store(b, row + shape.publics, FR_ZERO)
        store(c, row + shape.publics, FR_ZERO)


def _vectors(circuit: Circuit, buffer: np.ndarray) -> tuple[np.ndarray, ...]:
    """a, b, c and w of a buffer as rows of limbs, sharing its memory."""
    if buffer.nbytes != circuit.partition_bytes:
        raise ValueError(f"{buffer.nbytes} bytes: a partition of this circuit takes {circuit.partition_bytes}")
    return tuple(rows(buffer[part], 4) for part in circuit.slices().values())


def synthesise(circuit: Circuit, seed: int, partition: int, out: np.ndarray, threads: int = 1) -> None:
    """Write a, b, c and the witness of one partition, Montgomery form, into out (uint8, circuit.partition_bytes).

    The witness follows from seed and partition alone. Raises ValueError for a buffer of another size.
    """
    vectors, shape = _vectors(circuit, out), circuit.shape
    digest = hashlib.sha512(f"cuzkbench witness {seed} {partition}".encode()).digest()
    *keys, selectors = np.frombuffer(digest, "<u8")[:5]
    spread(partial(_hash_chains, vectors, shape, tuple(keys), coefficients()), shape.chains, threads)
    spread(partial(_bits, vectors, shape, selectors), shape.bits, threads)
    _selectors_and_publics(vectors, shape, selectors)


def public_inputs(circuit: Circuit, buffer: np.ndarray) -> list[int]:
    """The public inputs of a synthesised partition."""
    *_, w = _vectors(circuit, buffer)
    return [fr_from_montgomery(value.tobytes()) for value in w[1 : 1 + circuit.public_inputs]]
