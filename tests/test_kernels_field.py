"""The kernels' field arithmetic, built for the host, against Python's ints."""

from __future__ import annotations

import random

import pytest

from cuzkbench import bls12_381 as curve
from tests.kernels_on_host import HostLauncher, needs_compiler

SEED = 20240607
pytestmark = needs_compiler


def values(modulus: int, count: int) -> list[int]:
    """Edge values, uniform ones, high Hamming weight, and long runs of ones and zeros."""
    rng, bits = random.Random(SEED), modulus.bit_length()
    found = [0, 1, 2, modulus - 1, modulus - 2, (modulus - 1) // 2, (modulus + 1) // 2, 2**32 - 1, 2**32, 2**64 - 1]
    while len(found) < count:
        run = ((1 << rng.randrange(1, bits)) - 1) << rng.randrange(bits)
        heavy = rng.getrandbits(bits) | rng.getrandbits(bits) | rng.getrandbits(bits)
        found += [rng.randrange(modulus), heavy % modulus, run % modulus, (modulus - run) % modulus]
    return found[:count]


def run(kernel: str, size: int, *operands: list[int]) -> list[int]:
    """The raw (Montgomery) results of one elementwise kernel on raw operands."""
    device, count = HostLauncher(), len(operands[0])
    out = device.allocate(count * size)
    places = [device.put(b"".join(value.to_bytes(size, "little") for value in operand)) for operand in operands]
    device.launch("field_kernels", kernel, (count,), 1, (out, *places), 0, 0)
    data = device.read(out, count * size)
    return [int.from_bytes(data[i : i + size], "little") for i in range(0, len(data), size)]


PRIMES = {"fr": (curve.r, curve.FR_R, 32), "fp": (curve.p, curve.FP_R, 48)}
BINARY = {
    "fr_add": lambda a, b, r: a + b,
    "fr_sub": lambda a, b, r: a - b,
    "fr_mul": lambda a, b, r: a * b * r,
    "fp_add": lambda a, b, r: a + b,
    "fp_sub": lambda a, b, r: a - b,
    "fp_mul": lambda a, b, r: a * b * r,
    "fp_mul_wide": lambda a, b, r: a * b * r,
    "fp_squares_apart": lambda a, b, r: (a * a - b * b) * r,
}
UNARY = {
    "fr_neg": lambda a, m, r: -a,
    "fr_sqr": lambda a, m, r: a * a * r,
    "fp_neg": lambda a, m, r: -a,
    "fp_sqr": lambda a, m, r: a * a * r,
}


@pytest.mark.parametrize("kernel", BINARY)
def test_field_binary_vs_python_int(kernel: str) -> None:
    modulus, radix, size = PRIMES[kernel[:2]]
    edge = values(modulus, 60)
    a, b = zip(*((x, y) for x in edge for y in edge), strict=True)
    inverse = pow(radix, -1, modulus)
    expected = [BINARY[kernel](x, y, inverse) % modulus for x, y in zip(a, b, strict=True)]
    assert run(kernel, size, list(a), list(b)) == expected, f"seed {SEED}"


@pytest.mark.parametrize("kernel", UNARY)
def test_field_unary_vs_python_int(kernel: str) -> None:
    modulus, radix, size = PRIMES[kernel[:2]]
    a = values(modulus, 2000)
    inverse = pow(radix, -1, modulus)
    assert run(kernel, size, a) == [UNARY[kernel](x, modulus, inverse) % modulus for x in a], f"seed {SEED}"


def test_fp_inverse_vs_python_pow() -> None:
    a, p, radix = values(curve.p, 40), curve.p, curve.FP_R
    expected = [pow(x, -1, p) * radix * radix % p if x else 0 for x in a]
    assert run("fp_inverse", 48, a) == expected, f"seed {SEED}"


@pytest.mark.parametrize("kernel", ["fp2_add", "fp2_sub", "fp2_mul", "fp2_sqr", "fp2_inverse"])
def test_fp2_vs_python_int(kernel: str) -> None:
    p, inverse = curve.p, pow(curve.FP_R, -1, curve.p)
    edge = values(p, 16 if kernel != "fp2_inverse" else 6)
    pairs = [(x, y) for x in edge for y in edge]
    if kernel in ("fp2_sqr", "fp2_inverse"):
        operands = [pairs]
    else:
        both = [(a, b) for a in pairs for b in pairs[::3]]
        operands = [[a for a, _ in both], [b for _, b in both]]
    raw = [[x + (y << 384) for x, y in operand] for operand in operands]
    got = [(value & (1 << 384) - 1, value >> 384) for value in run(kernel, 96, *raw)]

    def product(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
        return (a[0] * b[0] - a[1] * b[1]) * inverse % p, (a[0] * b[1] + a[1] * b[0]) * inverse % p

    if kernel == "fp2_inverse":  # a / a = 1, and 0 stays 0
        one = (curve.FP_ONE, 0)
        assert [product(a, b) for a, b in zip(operands[0], got, strict=True)] == [
            one if any(a) else (0, 0) for a in operands[0]
        ]
        return
    table = {
        "fp2_add": lambda a, b: ((a[0] + b[0]) % p, (a[1] + b[1]) % p),
        "fp2_sub": lambda a, b: ((a[0] - b[0]) % p, (a[1] - b[1]) % p),
        "fp2_mul": product,
        "fp2_sqr": lambda a, b: product(a, a),
    }
    expected = [table[kernel](a, b) for a, b in zip(operands[0], operands[-1], strict=True)]
    assert got == expected, f"seed {SEED}"
