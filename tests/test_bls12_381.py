"""The constants prove themselves, and the layouts round-trip."""

from __future__ import annotations

import random

import py_arkworks_bls12381 as arkworks
import pytest

from cuzkbench import bls12_381 as curve

SEED = 381


def _is_probable_prime(value: int) -> bool:
    odd, twos = value - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    rng = random.Random(SEED)
    for _ in range(24):
        power = pow(rng.randrange(2, value - 1), odd, value)
        if power in (1, value - 1):
            continue
        for _ in range(twos - 1):
            power = power * power % value
            if power == value - 1:
                break
        else:
            return False
    return True


def test_moduli_are_primes_of_the_stated_length():
    assert curve.p.bit_length() == 381 and _is_probable_prime(curve.p)
    assert curve.r.bit_length() == 255 and _is_probable_prime(curve.r)


def test_r_divides_the_curve_order():
    trace = curve.X + 1  # of Frobenius: #E(Fp) = p + 1 - trace
    assert (curve.p + 1 - trace) % curve.r == 0
    assert (curve.p**12 - 1) % curve.r == 0


@pytest.mark.parametrize("bits", [32, 64])
def test_negated_inverses(bits):
    word = 1 << bits
    assert curve.r * getattr(curve, f"FR_NEG_INV_{bits}") % word == word - 1
    assert curve.p * getattr(curve, f"FP_NEG_INV_{bits}") % word == word - 1


def test_montgomery_constants_vs_definition():
    assert 2**256 % curve.r == curve.FR_ONE and 2**512 % curve.r == curve.FR_R2
    assert 2**384 % curve.p == curve.FP_ONE and 2**768 % curve.p == curve.FP_R2


def test_root_of_unity_is_primitive():
    assert (curve.r - 1) % 2**curve.TWO_ADICITY == 0 and (curve.r - 1) >> curve.TWO_ADICITY & 1
    assert pow(curve.ROOT_OF_UNITY, 1 << 31, curve.r) == curve.r - 1
    for log2_size in (0, 1, 8, 27, 32):
        root = curve.root_of_unity(log2_size)
        assert pow(root, 1 << log2_size, curve.r) == 1
        assert log2_size == 0 or pow(root, 1 << (log2_size - 1), curve.r) == curve.r - 1
    with pytest.raises(ValueError, match="from 0 to 32"):
        curve.root_of_unity(33)


def test_seven_is_no_square_so_the_coset_avoids_every_domain():
    assert pow(curve.FR_GENERATOR, (curve.r - 1) // 2, curve.r) == curve.r - 1


def test_generators_are_on_their_curves():
    x, y = curve.G1_GENERATOR
    assert (y * y - x**3 - curve.G1_B) % curve.p == 0

    def times(left, right):
        return left[0] * right[0] - left[1] * right[1], left[0] * right[1] + left[1] * right[0]

    (x, y), (b0, b1) = curve.G2_GENERATOR, curve.G2_B
    cube, square = times(times(x, x), x), times(y, y)
    assert (square[0] - cube[0] - b0) % curve.p == 0 and (square[1] - cube[1] - b1) % curve.p == 0


def test_generators_vs_arkworks():
    def little_endian(*parts):
        return b"".join(part.to_bytes(48, "little") for part in parts)

    assert bytes(arkworks.G1Point().to_xy_bytes_le()) == little_endian(*curve.G1_GENERATOR)
    (x0, x1), (y0, y1) = curve.G2_GENERATOR
    assert bytes(arkworks.G2Point().to_xy_bytes_le()) == little_endian(x0, x1, y0, y1)
    assert arkworks.G1Point() * arkworks.Scalar.from_be_bytes((curve.r - 1).to_bytes(32, "big")) == -arkworks.G1Point()


@pytest.mark.parametrize("value", [0, 1, 2, curve.r - 1, random.Random(SEED).randrange(curve.r)])
def test_scalars_round_trip(value):
    data = curve.fr_to_montgomery(value)
    assert len(data) == 32 and curve.fr_from_montgomery(data) == value
    assert int.from_bytes(data, "little") == value * 2**256 % curve.r


@pytest.mark.parametrize("value", [0, 1, 2, curve.p - 1, random.Random(SEED).randrange(curve.p)])
def test_base_field_vs_definition(value):
    data = curve.fp_to_montgomery(value)
    assert len(data) == 48 and int.from_bytes(data, "little") == value * 2**384 % curve.p


def test_points_are_their_coordinates_in_order():
    (x, y), ((x0, x1), (y0, y1)) = curve.G1_GENERATOR, curve.G2_GENERATOR
    assert curve.g1_to_montgomery((x, y)) == curve.fp_to_montgomery(x) + curve.fp_to_montgomery(y)
    assert curve.g2_to_montgomery(curve.G2_GENERATOR) == b"".join(map(curve.fp_to_montgomery, (x0, x1, y0, y1)))


def test_limbs_round_trip_and_refuse_what_does_not_fit():
    for bits, count in ((32, 12), (64, 6)):
        assert curve.from_limbs(curve.to_limbs(curve.p, bits, count), bits) == curve.p
    with pytest.raises(ValueError, match="does not fit"):
        curve.to_limbs(1 << 64, 32, 2)
