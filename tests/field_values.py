"""Field elements that find carry faults: uniform, high Hamming weight, long runs of 0 and 1, and the edges."""

from __future__ import annotations

import random


def uniform(modulus: int, rng: random.Random) -> int:
    return rng.randrange(modulus)


def heavy(modulus: int, rng: random.Random) -> int:
    """Nearly all bits set."""
    value = (1 << modulus.bit_length()) - 1
    for _ in range(rng.randrange(4)):
        value &= ~(1 << rng.randrange(modulus.bit_length()))
    return value % modulus


def runs(modulus: int, rng: random.Random) -> int:
    """Runs of equal bits, 1 to 128 long."""
    value, length, bit = 0, 0, rng.randrange(2)
    while length < modulus.bit_length():
        run = rng.randrange(1, 129)
        value |= (bit * ((1 << run) - 1)) << length
        length, bit = length + run, 1 - bit
    return value % modulus


GENERATORS = {"uniform": uniform, "heavy": heavy, "runs": runs}


def edges(modulus: int) -> list[int]:
    words = [1 << 64 * index for index in range(1, modulus.bit_length() // 64 + 1)]
    return [0, 1, 2, modulus - 1, modulus - 2, modulus // 2, *words, *(word - 1 for word in words)]


def values(modulus: int, count: int, seed: int) -> list[int]:
    """The edges, then `count` of each generator."""
    rng = random.Random(seed)
    drawn = [generator(modulus, rng) for generator in GENERATORS.values() for _ in range(count)]
    return edges(modulus) + drawn
