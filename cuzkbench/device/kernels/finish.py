"""The last step of an MSM on the host: the few points that a device returns for each window become one affine point.

Points are XYZZ in Montgomery form as msm.cu leaves them; plain Python ints, about 300 doublings and 100 additions.
"""

from __future__ import annotations

from typing import Any

from cuzkbench import bls12_381 as curve
from cuzkbench.device.kernels.shapes import MsmPlan

P = curve.p
_R_INVERSE = pow(curve.FP_R, -1, P)


class Fp2:
    """c0 + c1 u with u^2 = -1; only what the group law below needs."""

    __slots__ = ("c0", "c1")

    def __init__(self, c0: int, c1: int) -> None:
        self.c0, self.c1 = c0 % P, c1 % P

    def __add__(self, other: Fp2) -> Fp2:
        return Fp2(self.c0 + other.c0, self.c1 + other.c1)

    def __sub__(self, other: Fp2) -> Fp2:
        return Fp2(self.c0 - other.c0, self.c1 - other.c1)

    def __mul__(self, other: Fp2) -> Fp2:
        return Fp2(self.c0 * other.c0 - self.c1 * other.c1, self.c0 * other.c1 + self.c1 * other.c0)

    def __mod__(self, modulus: int) -> Fp2:
        return self

    def __rmul__(self, factor: int) -> Fp2:
        return Fp2(factor * self.c0, factor * self.c1)

    def __bool__(self) -> bool:
        return bool(self.c0 or self.c1)


Point = tuple[Any, Any, Any, Any] | None  # x, y, zz, zzz over int or Fp2; None is infinity


def double(a: Point) -> Point:
    """2a (dbl-2008-s-1)."""
    if a is None:
        return None
    x, y, zz, zzz = a
    u = 2 * y % P
    v = u * u % P
    w, s, m = u * v % P, x * v % P, 3 * (x * x % P) % P
    x3 = (m * m - 2 * s) % P
    return x3, (m * (s - x3) - w * y) % P, v * zz % P, w * zzz % P


def add(a: Point, b: Point) -> Point:
    """a + b (add-2008-s)."""
    if a is None or b is None:
        return b if a is None else a
    u, s = a[0] * b[2] % P, a[1] * b[3] % P
    p, r = (b[0] * a[2] - u) % P, (b[1] * a[3] - s) % P
    if not p:
        return None if r else double(a)
    pp = p * p % P
    ppp, q = p * pp % P, u * pp % P
    x = (r * r - ppp - 2 * q) % P
    return x, (r * (q - x) - s * ppp) % P, a[2] * b[2] % P * pp % P, a[3] * b[3] % P * ppp % P


def _coordinates(data: bytes, group: str) -> list[Any]:
    size = curve.FP_BYTES
    values = [int.from_bytes(data[i : i + size], "little") * _R_INVERSE % P for i in range(0, len(data), size)]
    return values if group == "g1" else [Fp2(*values[i : i + 2]) for i in range(0, len(values), 2)]


def _times(point: Point, factor: int) -> Point:
    """factor * point for a power of two."""
    for _ in range(factor.bit_length() - 1):
        point = double(point)
    return point


def finish(plan: MsmPlan, result: bytes) -> bytes:
    """The sum as canonical little-endian x, y (G2: c0 before c1), zeros for infinity; raises ValueError by size."""
    if len(result) != plan.result_bytes:
        raise ValueError(f"an MSM result of {len(result)} bytes where {plan.result_bytes} are due")
    flat = _coordinates(result, plan.group)
    points: list[Point] = [tuple(flat[i : i + 4]) if flat[i + 2] else None for i in range(0, len(flat), 4)]
    total: Point = None
    for window in reversed(range(plan.shared)):
        total = _times(total, 1 << plan.bits)
        value: Point = None
        for level in reversed(range(len(plan.lengths))):
            value = add(_times(value, plan.lengths[level]), points[(level + 1) * plan.shared + window])
        total = add(total, value)
    return affine_bytes(total, plan.group)


def affine_bytes(point: Point, group: str) -> bytes:
    """Canonical bytes of a point."""
    return b"".join(value.to_bytes(curve.FP_BYTES, "little") for value in _affine(point, group))


def _affine(point: Point, group: str) -> list[int]:
    if point is None:
        return [0, 0] if group == "g1" else [0, 0, 0, 0]
    x, y, zz, zzz = point
    if group == "g1":
        return [x * pow(zz, -1, P) % P, y * pow(zzz, -1, P) % P]
    parts: list[int] = []
    for numerator, denominator in ((x, zz), (y, zzz)):
        norm = pow(denominator.c0**2 + denominator.c1**2, -1, P)
        quotient = numerator * Fp2(denominator.c0 * norm, -denominator.c1 * norm)
        parts += [quotient.c0, quotient.c1]
    return parts


def window_bases(base: bytes, group: str, bits: int, windows: int) -> bytes:
    """2^(bits * w) * base for w < windows, affine Montgomery points in and out: the seeds of a fixed-base table."""
    flat = _coordinates(base, group)
    one: Any = 1 if group == "g1" else Fp2(1, 0)
    point: Point = (flat[0], flat[1], one, one) if any(base) else None
    seeds = b""
    for _ in range(windows):
        seeds += b"".join(map(curve.fp_to_montgomery, _affine(point, group)))
        point = _times(point, 1 << bits)
    return seeds
