"""What each kernel of the device contract means, on NumPy arrays: NTT, quotient (numba) and MSM (py-arkworks).

`host.py` runs these behind its queues, and the tests hold `cuda.py` against them. Every function releases the GIL
while it computes. Arrays are uint8 with elements in Montgomery form, as `device/base.py` lays them out.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import py_arkworks_bls12381 as arkworks

from cuzkbench import bls12_381 as curve
from cuzkbench.field import (
    FR_ONE,
    FR_ZERO,
    Element,
    add,
    fr,
    from_montgomery,
    load,
    mul,
    multiply_rows,
    rows,
    store,
    sub,
)
from cuzkbench.numba_cache import compiled

POINT: dict[str, Any] = {"g1": arkworks.G1Point, "g2": arkworks.G2Point}  # called without arguments: the generator


@compiled
def _fill_powers(table: np.ndarray, base: Element, first: Element, reverse: bool) -> None:
    """table[i] = first * base^i, or base^(i with its bits reversed)."""
    power, place = first, 0
    for index in range(table.shape[0]):
        store(table, place if reverse else index, power)
        power = mul(power, base)
        bit = table.shape[0] >> 1  # count up from the highest bit
        while place & bit:
            place, bit = place ^ bit, bit >> 1
        place |= bit


@compiled
def _multiply(values: np.ndarray, factors: np.ndarray) -> None:
    for row in range(values.shape[0]):
        store(values, row, mul(load(values, row, FR_ONE), load(factors, row, FR_ONE)))


@compiled
def _natural_to_reversed(values: np.ndarray, twiddles: np.ndarray) -> None:
    """Decimation in frequency (Gentleman-Sande), in place. Cost: n/2 log2(n) products."""
    half = values.shape[0] >> 1
    while half:
        for block in range(0, values.shape[0], 2 * half):
            for index in range(half):
                low, high = block + index, block + index + half
                x, y = load(values, low, FR_ONE), load(values, high, FR_ONE)
                store(values, low, add(x, y))
                store(values, high, mul(sub(x, y), load(twiddles, half + index, FR_ONE)))
        half >>= 1


@compiled
def _reversed_to_natural(values: np.ndarray, twiddles: np.ndarray) -> None:
    """Decimation in time (Cooley-Tukey), in place. Cost: n/2 log2(n) products."""
    half = 1
    while half < values.shape[0]:
        for block in range(0, values.shape[0], 2 * half):
            for index in range(half):
                low, high = block + index, block + index + half
                x, y = load(values, low, FR_ONE), mul(load(values, high, FR_ONE), load(twiddles, half + index, FR_ONE))
                store(values, low, add(x, y))
                store(values, high, sub(x, y))
        half *= 2


@compiled
def _quotient(a: np.ndarray, b: np.ndarray, c: np.ndarray, inverse: Element) -> None:
    for row in range(a.shape[0]):
        product = mul(load(a, row, inverse), load(b, row, inverse))
        store(a, row, mul(sub(product, load(c, row, inverse)), inverse))


@compiled
def evaluate(coefficients: np.ndarray, point: Element) -> Element:
    """Horner's rule: the polynomial with these coefficients (a row each, lowest first) at a point."""
    total = FR_ZERO
    for index in range(coefficients.shape[0] - 1, -1, -1):
        total = add(mul(total, point), load(coefficients, index, FR_ZERO))
    return total


@lru_cache(maxsize=8)
def _twiddles(log2_size: int, inverse: bool) -> np.ndarray:
    """table[h + k] = w_2h^k for h = 1, 2, 4 … n/2 and k < h: one contiguous run a stage. n * 32 bytes, kept."""
    table = np.zeros((1 << log2_size, 4), np.uint64)
    half = len(table) // 2
    powers = table[half:]
    _fill_powers(powers, fr(pow(curve.root_of_unity(log2_size), -1 if inverse else 1, curve.r)), FR_ONE, False)
    for stage in range(1, log2_size):
        table[half >> stage : 2 * half >> stage] = powers[:: 1 << stage]
    return table


def reversed_powers(base: int, first: int, log2_size: int) -> np.ndarray:
    """first * base^i for i < n in bit-reversed places (n x 4 limbs, Montgomery form)."""
    table = np.empty((1 << log2_size, 4), np.uint64)
    _fill_powers(table, fr(base), fr(first), True)
    return table


@lru_cache(maxsize=8)
def _coset_scales(log2_size: int, inverse: bool) -> np.ndarray:
    """g^i before the forward transform, g^-i / n after the inverse one: n * 32 bytes, kept."""
    shift = pow(curve.FR_GENERATOR, -1 if inverse else 1, curve.r)
    return reversed_powers(shift, pow(1 << log2_size, -1, curve.r) if inverse else 1, log2_size)


def _vector(values: np.ndarray, log2_size: int) -> np.ndarray:
    vector = rows(values, 4)
    if len(vector) < 1 << log2_size:
        raise ValueError(f"{values.nbytes} bytes: 2^{log2_size} elements need {32 << log2_size}")
    return vector[: 1 << log2_size]


def ntt(values: np.ndarray, log2_size: int, *, inverse: bool = False, coset: bool = False) -> None:
    """In place, over the first 2**log2_size elements; order and coset as `Device.ntt` says."""
    vector = _vector(values, log2_size)
    if inverse:
        _natural_to_reversed(vector, _twiddles(log2_size, True))
        if coset:
            _multiply(vector, _coset_scales(log2_size, True))
        else:
            multiply_rows(vector, vector, fr(pow(1 << log2_size, -1, curve.r)))
    else:
        if coset:
            _multiply(vector, _coset_scales(log2_size, False))
        _reversed_to_natural(vector, _twiddles(log2_size, False))


def ntt_to_reversed(values: np.ndarray, log2_size: int) -> None:
    """Forward in place from natural-order coefficients to bit-reversed values: what benchmarks compare."""
    _natural_to_reversed(_vector(values, log2_size), _twiddles(log2_size, False))


def quotient(a: np.ndarray, b: np.ndarray, c: np.ndarray, log2_size: int) -> None:
    """a = (a*b - c) / (g^n - 1) pointwise, in place."""
    vanishing = pow(curve.FR_GENERATOR, 1 << log2_size, curve.r) - 1
    _quotient(*(_vector(values, log2_size) for values in (a, b, c)), fr(pow(vanishing, -1, curve.r)))


def points(group: str, bases: np.ndarray) -> list[Any]:
    """py-arkworks points of affine Montgomery bytes, for `msm` to use again and again; group "g1" or "g2".

    Raises ValueError for a point that is not on the curve. Cost: 4 µs a point in G1.
    """
    size, read = curve.POINT_BYTES[group], POINT[group].from_xy_bytes_unchecked_le
    if bases.nbytes % size:
        raise ValueError(f"{bases.nbytes} bytes of bases: not a multiple of {size}")
    data = from_montgomery(bases, 6).tobytes()
    return [read(data[start : start + size]) for start in range(0, len(data), size)]


def msm(group: str, bases: list[Any], values: np.ndarray, count: int) -> bytes:
    """Sum of values[i] * bases[i] for i < count as one affine point: canonical little-endian, zeros for infinity.

    bases as `points` gives them, values Fr Montgomery bytes; raises ValueError where either is too short.
    """
    if len(bases) < count or values.nbytes < 32 * count:  # arkworks would cut the longer list without a word
        raise ValueError(f"{len(bases)} bases and {values.nbytes} bytes of scalars: {count} of each are needed")
    data, read = from_montgomery(values[: 32 * count], 4).tobytes(), arkworks.Scalar.from_le_bytes
    scalars = [read(data[start : start + 32]) for start in range(0, len(data), 32)]  # 0.5 µs each
    return bytes(POINT[group].multiexp_unchecked(bases[:count], scalars).to_xy_bytes_le())
