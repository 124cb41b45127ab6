"""BLS12-381 in plain Python ints: constants with their formulas, and the byte layouts that all parts share.

Everything below follows from X, the curve's parameter; the generators are those of the zcash specification.
Layouts are those of `device/base.py`: Montgomery form, little-endian, Fr 32 bytes, Fp 48, infinity all zero bytes.
"""

from __future__ import annotations

from collections.abc import Iterable

X = -0xD201000000010000
"""The BLS parameter: p and r are polynomials in it."""

r = X**4 - X**2 + 1
"""Order of G1, G2 and GT, the scalar field (255 bits)."""
p = (X - 1) ** 2 * r // 3 + X
"""The base field (381 bits)."""

FR_BYTES, FP_BYTES, G1_BYTES, G2_BYTES = 32, 48, 96, 192
POINT_BYTES = {"g1": G1_BYTES, "g2": G2_BYTES}
FR_R, FP_R = 1 << 256, 1 << 384
"""The Montgomery radices: a field element v is stored as v * R mod modulus."""
FR_ONE, FP_ONE = FR_R % r, FP_R % p
FR_R2, FP_R2 = FR_R**2 % r, FP_R**2 % p
FR_NEG_INV_32, FP_NEG_INV_32 = -pow(r, -1, 1 << 32) % (1 << 32), -pow(p, -1, 1 << 32) % (1 << 32)
FR_NEG_INV_64, FP_NEG_INV_64 = -pow(r, -1, 1 << 64) % (1 << 64), -pow(p, -1, 1 << 64) % (1 << 64)
"""-modulus^-1 mod 2^32 and 2^64, the factor of one step of Montgomery reduction."""

FR_GENERATOR = 7
"""Generates Fr*; the NTT's coset is 7 * H."""
TWO_ADICITY = 32
"""r - 1 = 2^32 * odd."""
ROOT_OF_UNITY = pow(FR_GENERATOR, (r - 1) >> TWO_ADICITY, r)
"""A primitive 2^32-th root of unity: every domain's root is a power of it."""

G1_B = 4
"""G1: y^2 = x^3 + 4 over Fp."""
G2_B = (4, 4)
"""G2: y^2 = x^3 + 4(1 + u) over Fp2 = Fp[u]/(u^2 + 1), as (c0, c1)."""

G1 = tuple[int, int]
G2 = tuple[tuple[int, int], tuple[int, int]]

G1_GENERATOR: G1 = (
    0x17F1D3A73197D7942695638C4FA9AC0FC3688C4F9774B905A14E3A3F171BAC586C55E83FF97A1AEFFB3AF00ADB22C6BB,
    0x08B3F481E3AAA0F1A09E30ED741D8AE4FCF5E095D5D00AF600DB18CB2C04B3EDD03CC744A2888AE40CAA232946C5E7E1,
)
G2_GENERATOR: G2 = (
    (
        0x024AA2B2F08F0A91260805272DC51051C6E47AD4FA403B02B4510B647AE3D1770BAC0326A805BBEFD48056C8C121BDB8,
        0x13E02B6052719F607DACD3A088274F65596BD0D09920B61AB5DA61BBDC7F5049334CF11213945D57E5AC7D055D042B7E,
    ),
    (
        0x0CE5D527727D6E118CC9CDC6DA2E351AADFD9BAA8CBDD3A76D429A695160D12C923AC9CC3BACA289E193548608B82801,
        0x0606C4A02EA734CC32ACD2B02BC28B99CB3E287E85A763AF267492AB572E99AB3F370D275CEC1DA1AAA9075FF05F79BE,
    ),
)


def root_of_unity(log2_size: int) -> int:
    """The primitive 2**log2_size-th root of unity that every NTT here uses, 0..32; raises ValueError beyond."""
    if not 0 <= log2_size <= TWO_ADICITY:
        raise ValueError(f"log2_size {log2_size}: from 0 to {TWO_ADICITY}")
    return pow(ROOT_OF_UNITY, 1 << (TWO_ADICITY - log2_size), r)


def to_limbs(value: int, bits: int, count: int) -> list[int]:
    """A non-negative value as `count` limbs of `bits` bits, lowest first; raises ValueError where it does not fit."""
    if not 0 <= value < 1 << (bits * count):
        raise ValueError(f"{value:#x}: does not fit {count} limbs of {bits} bits")
    return [value >> (bits * index) & ((1 << bits) - 1) for index in range(count)]


def from_limbs(limbs: Iterable[int], bits: int) -> int:
    """The value of limbs of `bits` bits, lowest first."""
    return sum(int(limb) << (bits * index) for index, limb in enumerate(limbs))


def fr_to_montgomery(value: int) -> bytes:
    """A scalar, reduced mod r, as 32 Montgomery bytes."""
    return (value * FR_R % r).to_bytes(FR_BYTES, "little")


def fr_from_montgomery(data: bytes) -> int:
    """The scalar of 32 Montgomery bytes."""
    return int.from_bytes(data, "little") * pow(FR_R, -1, r) % r


def fp_to_montgomery(value: int) -> bytes:
    """A base-field element, reduced mod p, as 48 Montgomery bytes."""
    return (value * FP_R % p).to_bytes(FP_BYTES, "little")


def g1_to_montgomery(point: G1) -> bytes:
    """An affine G1 point as x, y (96 Montgomery bytes)."""
    return b"".join(map(fp_to_montgomery, point))


def g2_to_montgomery(point: G2) -> bytes:
    """An affine G2 point as x.c0, x.c1, y.c0, y.c1 (192 Montgomery bytes)."""
    return b"".join(map(fp_to_montgomery, (*point[0], *point[1])))
