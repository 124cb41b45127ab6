"""Many multiples of one generator on the CPU: the slow part of key generation where no GPU does it.

A table holds d * 256^w * generator for every byte d and window w, so a multiple is a sum of at most 32 table points.
The sums are affine, one window of a whole batch at a time, so that one inversion serves the batch (Montgomery's
trick): six products an addition, in the field or in its extension.
"""

from __future__ import annotations

import os
from functools import lru_cache

import numpy as np

from cuzkbench.device.host_math import POINT
from cuzkbench.field import INVERSE, ONE, Element, from_montgomery, load, mul, power, rows, store, sub, to_montgomery
from cuzkbench.numba_cache import compiled, spread

_BATCH = 2048  # an inversion costs as much as 600 products; the sums of a batch stay in the cache


@compiled
def _sums(
    digits: np.ndarray, bits: int, table: np.ndarray, sums: np.ndarray, one: Element, inverse_exponent: Element
) -> None:
    """sums[i] = sum over windows w of table[w, digit w of i]: points are two rows x, y; sums start as zeros.

    digits are little-endian numbers (count x 32 bytes); table has 2^bits points a window, those of digit 0 unused.
    No addition meets two equal or opposite points: a sum's number is below 2^(bits w), the point's is a multiple of
    that, and together they are below the order (or, in building the table, no multiple of it).
    """
    count, windows = digits.shape[0], 256 // bits
    begun, pending = np.zeros(count, np.bool_), np.zeros(count, np.int64)
    products = np.empty((count, len(one)), np.uint64)
    for window in range(windows):
        running = one
        for index in range(count):
            at = window * bits
            digit = (digits[index, at >> 3] >> (at & 7)) & ((1 << bits) - 1)
            pending[index] = 0
            if digit == 0:
                continue
            point = 2 * ((window << bits) + digit)
            if begun[index]:
                pending[index] = point
                store(products, index, running)
                running = mul(running, sub(load(table, point, one), load(sums, 2 * index, one)))
            else:
                begun[index] = True
                store(sums, 2 * index, load(table, point, one))
                store(sums, 2 * index + 1, load(table, point + 1, one))
        inverse = power(running, inverse_exponent, one)
        for index in range(count - 1, -1, -1):
            point = pending[index]
            if point == 0:
                continue
            x, y = load(sums, 2 * index, one), load(sums, 2 * index + 1, one)
            other_x, other_y = load(table, point, one), load(table, point + 1, one)
            difference = sub(other_x, x)
            slope = mul(sub(other_y, y), mul(inverse, load(products, index, one)))
            inverse = mul(inverse, difference)
            new_x = sub(sub(mul(slope, slope), x), other_x)
            store(sums, 2 * index, new_x)
            store(sums, 2 * index + 1, sub(mul(slope, sub(x, new_x)), y))


@lru_cache(maxsize=2)
def _table(group: str) -> np.ndarray:
    """The table of a group's generator: 32 windows x 256 digits, built from its 256 doublings with one-bit windows."""
    one, limbs = ONE[group], len(ONE[group])
    point = POINT[group]()
    doublings: list[bytes] = []
    for _ in range(256):
        doublings += [bytes(16 * limbs), bytes(point.to_xy_bytes_le())]  # digits 0 and 1
        point = point + point
    bits = rows(to_montgomery(rows(np.frombuffer(b"".join(doublings), np.uint8).copy(), 6)), limbs)
    numbers = b"".join((digit << 8 * window).to_bytes(32, "little") for window in range(32) for digit in range(256))
    table = np.zeros((2 * 32 * 256, limbs), np.uint64)
    _sums(np.frombuffer(numbers, np.uint8).reshape(-1, 32).copy(), 1, bits, table, one, INVERSE[group])
    return table


def multiples(group: str, scalars: np.ndarray, threads: int | None = None) -> np.ndarray:
    """scalars[i] * generator for Fr Montgomery bytes (uint8), as affine Montgomery bytes (uint8); group "g1" or "g2".

    Cost on one core: see `keys.estimate_seconds`, which times it.
    """
    one, table = ONE[group], _table(group)
    digits = from_montgomery(scalars, 4).view(np.uint8).reshape(-1, 32)
    sums = np.zeros((2 * len(digits), len(one)), np.uint64)

    def work(start: int, stop: int) -> None:
        for first in range(start, stop, _BATCH):
            last = min(first + _BATCH, stop)
            _sums(digits[first:last], 8, table, sums[2 * first : 2 * last], one, INVERSE[group])

    spread(work, len(digits), threads or os.cpu_count() or 1)
    return sums.reshape(-1).view(np.uint8)
