"""The NTT and pointwise kernels, run on the host, against direct evaluation of polynomials."""

from __future__ import annotations

import random

import pytest

from cuzkbench import bls12_381 as curve
from cuzkbench.device.kernels.loader import Kernels
from cuzkbench.device.kernels.shapes import ntt_passes
from tests.kernels_on_host import HostLauncher, needs_compiler

SEED, R, G = 7, curve.r, curve.FR_GENERATOR
pytestmark = needs_compiler


def reversal(values: list[int]) -> list[int]:
    bits = len(values).bit_length() - 1
    return [values[int(f"{i:0{bits}b}"[::-1], 2)] for i in range(len(values))]


def evaluate(coefficients: list[int], x: int) -> int:
    total = 0
    for coefficient in reversed(coefficients):
        total = (total * x + coefficient) % R
    return total


class Host:
    """Kernels on the host and the round trip of scalars to it."""

    def __init__(self) -> None:
        self.device = HostLauncher()
        self.kernels = Kernels(launcher=self.device)

    def put(self, values: list[int]) -> int:
        return self.device.put(b"".join(map(curve.fr_to_montgomery, values)))

    def get(self, address: int, count: int) -> list[int]:
        data = self.device.read(address, 32 * count)
        raw = [int.from_bytes(data[i : i + 32], "little") for i in range(0, len(data), 32)]
        assert all(value < R for value in raw)
        inverse = pow(curve.FR_R, -1, R)
        return [value * inverse % R for value in raw]


@pytest.fixture(scope="module")
def host() -> Host:
    return Host()


def points(log2_size: int, rng: random.Random) -> list[int]:
    """All places of a small transform, a few of a large one."""
    size = 1 << log2_size
    return list(range(size)) if size <= 64 else [0, 1, size // 2, size - 1, *(rng.randrange(size) for _ in range(4))]


@pytest.mark.parametrize("coset", [False, True])
@pytest.mark.parametrize("log2_size", [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 16, 18, 19])
def test_forward_vs_direct_evaluation(host: Host, log2_size: int, coset: bool) -> None:
    rng = random.Random(SEED + log2_size)
    size, root = 1 << log2_size, curve.root_of_unity(log2_size)
    coefficients = [rng.randrange(R) for _ in range(size)]
    address = host.put(reversal(coefficients))
    host.kernels.ntt(0, address, log2_size, coset=coset)
    values = host.get(address, size)
    for place in points(log2_size, rng):
        assert values[place] == evaluate(coefficients, (G if coset else 1) * pow(root, place, R) % R), f"seed {SEED}"
    natural = host.put(coefficients)
    if not coset:
        host.kernels.ntt_to_reversed(0, natural, log2_size)
        assert host.get(natural, size) == reversal(values)
    host.kernels.ntt(0, address, log2_size, inverse=True, coset=coset)
    assert host.get(address, size) == reversal(coefficients)


def test_inverse_then_coset_is_the_polynomial_on_the_coset(host: Host) -> None:
    rng, log2_size = random.Random(SEED), 10
    coefficients, root = [rng.randrange(R) for _ in range(1 << log2_size)], curve.root_of_unity(log2_size)
    address = host.put([evaluate(coefficients, pow(root, k, R)) for k in range(1 << log2_size)])
    host.kernels.ntt(0, address, log2_size, inverse=True)
    host.kernels.ntt(0, address, log2_size, coset=True)
    values = host.get(address, 1 << log2_size)
    for place in (0, 1, 511, 1023):
        assert values[place] == evaluate(coefficients, G * pow(root, place, R) % R)


@pytest.mark.parametrize("log2_size", range(3, 28))
def test_passes_cover_every_bit_once(log2_size: int) -> None:
    low = 0
    for step in ntt_passes(log2_size):
        assert step.low == low and step.bits >= min(3, log2_size) and step.bits + step.group <= step.tile <= 10
        assert step.blocks << step.tile == 1 << log2_size and step.threads << step.radix == 1 << step.tile
        assert low == 0 or step.bits % step.radix == 0 or step.group + step.bits >= step.radix
        low += step.bits
    assert low == log2_size


def test_quotient_and_conversions_vs_python_int(host: Host) -> None:
    rng, log2_size = random.Random(SEED), 6
    a, b, c = ([rng.randrange(R) for _ in range(64)] for _ in range(3))
    at, bt, ct = map(host.put, (a, b, c))
    host.kernels.quotient(0, at, bt, ct, log2_size)
    zinv = pow(pow(G, 64, R) - 1, -1, R)
    assert host.get(at, 64) == [(x * y - z) * zinv % R for x, y, z in zip(a, b, c, strict=True)]
    host.kernels.from_montgomery(0, bt, 64)
    assert host.device.read(bt, 2048) == b"".join(x.to_bytes(32, "little") for x in b)
    host.kernels.to_montgomery(0, bt, 64)
    assert host.get(bt, 64) == b
    index = [rng.randrange(64) for _ in range(100)]
    out, places = host.device.allocate(3200), host.device.put(b"".join(i.to_bytes(4, "little") for i in index))
    host.kernels.gather(0, out, bt, places, 100)
    assert host.get(out, 100) == [b[i] for i in index]
