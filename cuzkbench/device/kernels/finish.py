"""The last step of an MSM on the host: the few points that a device returns for each window become one affine point.

Points are XYZZ in Montgomery form as msm.cu leaves them, four rows x, y, zz, zzz each; zz = 0 is infinity. Compiled,
since it stands in every partition's FINISH: about 300 doublings and 100 additions, 5,000 products of Fp or Fp2.
"""

from __future__ import annotations

import numpy as np

from cuzkbench.device.kernels.shapes import MsmPlan
from cuzkbench.field import INVERSE, ONE, Element, add, from_montgomery, load, mul, power, rows, store, sub
from cuzkbench.numba_cache import compiled


@compiled
def _is_zero(value: Element) -> bool:
    for limb in value:  # noqa: SIM110 (compiled code knows no generators)
        if limb != 0:
            return False
    return True


@compiled
def _double(points: np.ndarray, at: int, one: Element) -> None:
    """points[at] *= 2 (dbl-2008-s-1); infinity stays infinity."""
    x, y = load(points, 4 * at, one), load(points, 4 * at + 1, one)
    u = add(y, y)
    v = mul(u, u)
    w, s, square = mul(u, v), mul(x, v), mul(x, x)
    m = add(add(square, square), square)
    x3 = sub(mul(m, m), add(s, s))
    store(points, 4 * at, x3)
    store(points, 4 * at + 1, sub(mul(m, sub(s, x3)), mul(w, y)))
    store(points, 4 * at + 2, mul(v, load(points, 4 * at + 2, one)))
    store(points, 4 * at + 3, mul(w, load(points, 4 * at + 3, one)))


@compiled
def _add(points: np.ndarray, at: int, other: int, one: Element) -> None:
    """points[at] += points[other] (add-2008-s); equal, opposite and infinite operands included."""
    zz1, zz2 = load(points, 4 * at + 2, one), load(points, 4 * other + 2, one)
    if _is_zero(zz2):
        return
    if _is_zero(zz1):
        points[4 * at : 4 * at + 4] = points[4 * other : 4 * other + 4]
        return
    zzz1, zzz2 = load(points, 4 * at + 3, one), load(points, 4 * other + 3, one)
    u, s = mul(load(points, 4 * at, one), zz2), mul(load(points, 4 * at + 1, one), zzz2)
    p, r = sub(mul(load(points, 4 * other, one), zz1), u), sub(mul(load(points, 4 * other + 1, one), zzz1), s)
    if _is_zero(p):
        if _is_zero(r):
            _double(points, at, one)
        else:
            points[4 * at : 4 * at + 4] = 0
        return
    pp = mul(p, p)
    ppp, q = mul(p, pp), mul(u, pp)
    x3 = sub(sub(mul(r, r), ppp), add(q, q))
    store(points, 4 * at, x3)
    store(points, 4 * at + 1, sub(mul(r, sub(q, x3)), mul(s, ppp)))
    store(points, 4 * at + 2, mul(mul(zz1, zz2), pp))
    store(points, 4 * at + 3, mul(mul(zzz1, zzz2), ppp))


@compiled
def _to_affine(points: np.ndarray, at: int, one: Element, inverse_exponent: Element) -> None:
    """Rows 0 and 1 become x / zz and y / zzz of points[at], zeros for infinity."""
    zz, zzz = load(points, 4 * at + 2, one), load(points, 4 * at + 3, one)
    inverse = power(mul(zz, zzz), inverse_exponent, one)  # zero for infinity
    store(points, 0, mul(load(points, 4 * at, one), mul(inverse, zzz)))
    store(points, 1, mul(load(points, 4 * at + 1, one), mul(inverse, zz)))


@compiled
def _horner(
    points: np.ndarray, windows: int, bits: int, log2_lengths: np.ndarray, one: Element, inverse_exponent: Element
) -> None:
    """Rows 0 and 1 become the affine sum, or zeros; the two points behind the given ones are scratch."""
    total = points.shape[0] // 4 - 2
    value = total + 1
    points[4 * total :] = 0
    for window in range(windows - 1, -1, -1):
        for _ in range(bits):
            _double(points, total, one)
        points[4 * value : 4 * value + 4] = 0
        for level in range(len(log2_lengths) - 1, -1, -1):
            for _ in range(log2_lengths[level]):
                _double(points, value, one)
            _add(points, value, (level + 1) * windows + window, one)
        _add(points, total, value, one)
    _to_affine(points, total, one, inverse_exponent)


def finish(plan: MsmPlan, result: bytes) -> bytes:
    """The sum as canonical little-endian x, y (G2: c0 before c1), zeros for infinity; raises ValueError by size."""
    if len(result) != plan.result_bytes:
        raise ValueError(f"an MSM result of {len(result)} bytes where {plan.result_bytes} are due")
    one = ONE[plan.group]
    limbs = len(one)
    given = rows(np.frombuffer(result, np.uint8), limbs)
    points = np.zeros((len(given) + 8, limbs), np.uint64)
    points[: len(given)] = given
    log2_lengths = np.array([length.bit_length() - 1 for length in plan.lengths], np.int64)
    _horner(points, plan.shared, plan.bits, log2_lengths, one, INVERSE[plan.group])
    return from_montgomery(points[:2].reshape(-1).view(np.uint8), 6).tobytes()


def window_bases(base: bytes, group: str, bits: int, windows: int) -> bytes:
    """2^(bits * w) * base for w < windows, affine Montgomery points in and out: the seeds of a fixed-base table."""
    one, seeds = ONE[group], [base]
    for _ in range(windows - 1 if any(base) else 0):
        points = np.zeros((8, len(one)), np.uint64)
        points[4:6] = rows(np.frombuffer(seeds[-1], np.uint8), len(one))
        points[6:] = np.array(one, np.uint64)
        for _ in range(bits):
            _double(points, 1, one)
        _to_affine(points, 1, one, INVERSE[group])
        seeds.append(points[:2].tobytes())
    return b"".join(seeds if any(base) else [bytes(len(base))] * windows)
