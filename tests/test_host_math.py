"""Field, NTT, quotient and MSM of the host against Python ints and closed forms."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import py_arkworks_bls12381 as arkworks
import pytest

import cuzkbench
from cuzkbench import bls12_381 as curve
from cuzkbench import field, numba_cache
from cuzkbench.device import host_math
from cuzkbench.numba_cache import compiled
from tests.field_values import values

SEED = 20240
MODULI = {4: curve.r, 6: curve.p}


@compiled
def all_operations(x, y):
    return field.add(x, y), field.sub(x, y), field.mul(x, y)


def montgomery(value: int, limbs: int) -> tuple:
    return field.element((value << 64 * limbs) % MODULI[limbs], limbs)


def plain(element: tuple) -> int:
    limbs = len(element)
    return curve.from_limbs(element, 64) * pow(1 << 64 * limbs, -1, MODULI[limbs]) % MODULI[limbs]


def pairs(modulus: int) -> list[tuple[int, int]]:
    chosen = values(modulus, 40, SEED)
    return [(x, y) for x in chosen[:12] for y in chosen[:12]] + list(zip(chosen, chosen[::-1], strict=True))


@pytest.mark.parametrize("limbs", [4, 6])
def test_field_operations_vs_python_int(limbs):
    modulus = MODULI[limbs]
    for x, y in pairs(modulus):
        results = all_operations(montgomery(x, limbs), montgomery(y, limbs))
        assert all(curve.from_limbs(result, 64) < modulus for result in results), (x, y)
        assert [plain(result) for result in results] == [(x + y) % modulus, (x - y) % modulus, x * y % modulus], (x, y)


@pytest.mark.parametrize("limbs", [4, 6])
def test_raw_limbs_below_the_modulus_vs_python_int(limbs):
    """The limbs themselves are adversarial here, not the numbers that they stand for."""
    modulus = MODULI[limbs]
    inverse = pow(1 << 64 * limbs, -1, modulus)
    for x, y in pairs(modulus):
        total, difference, product = all_operations(field.element(x, limbs), field.element(y, limbs))
        assert curve.from_limbs(total, 64) == (x + y) % modulus, (x, y)
        assert curve.from_limbs(difference, 64) == (x - y) % modulus, (x, y)
        assert curve.from_limbs(product, 64) == x * y * inverse % modulus, (x, y)


def test_extension_field_vs_python_int():
    chosen = values(curve.p, 20, SEED)
    for x0, x1, y0, y1 in zip(chosen, chosen[3:], chosen[7:], chosen[11:], strict=False):
        x, y = montgomery(x0, 6) + montgomery(x1, 6), montgomery(y0, 6) + montgomery(y1, 6)
        results = [(plain(result[:6]), plain(result[6:])) for result in all_operations(x, y)]
        expected = [(x0 + y0, x1 + y1), (x0 - y0, x1 - y1), (x0 * y0 - x1 * y1, x0 * y1 + x1 * y0)]
        assert results == [(c0 % curve.p, c1 % curve.p) for c0, c1 in expected]


@pytest.mark.parametrize("limbs", [4, 6])
def test_power_by_modulus_minus_two_is_the_inverse(limbs):
    modulus, one = MODULI[limbs], montgomery(1, limbs)
    for value in (1, 2, modulus - 1, random.Random(SEED).randrange(1, modulus)):
        inverse = field.power(montgomery(value, limbs), field.element(modulus - 2, limbs), one)
        assert plain(inverse) == pow(value, -1, modulus)


@pytest.mark.parametrize(("limbs", "pack"), [(4, curve.fr_to_montgomery), (6, curve.fp_to_montgomery)])
def test_montgomery_conversion_vs_python_int(limbs, pack):
    chosen = values(MODULI[limbs], 20, SEED)
    canonical = np.array([curve.to_limbs(value, 64, limbs) for value in chosen], np.uint64)
    data = np.frombuffer(b"".join(map(pack, chosen)), np.uint8).copy()
    assert np.array_equal(field.from_montgomery(data, limbs), canonical)
    assert np.array_equal(field.to_montgomery(canonical), data)


def test_rows_refuses_a_broken_element():
    with pytest.raises(ValueError, match="whole number of 32-byte"):
        field.rows(np.zeros(33, np.uint8), 4)


def reverse(index: int, log2_size: int) -> int:
    return int(f"{index:0{log2_size}b}"[::-1], 2) if log2_size else 0


def pack(scalars: list[int]) -> np.ndarray:
    return np.frombuffer(b"".join(map(curve.fr_to_montgomery, scalars)), np.uint8).copy()


def unpack(data: np.ndarray) -> list[int]:
    return [curve.fr_from_montgomery(data[at : at + 32].tobytes()) for at in range(0, len(data), 32)]


def evaluate(coefficients: list[int], x: int) -> int:
    total = 0
    for coefficient in reversed(coefficients):
        total = (total * x + coefficient) % curve.r
    return total


@pytest.mark.parametrize("coset", [False, True])
@pytest.mark.parametrize("log2_size", [0, 1, 2, 3, 6, 8])
def test_ntt_vs_direct_evaluation(log2_size, coset):
    size, shift = 1 << log2_size, curve.FR_GENERATOR if coset else 1
    coefficients = (values(curve.r, size, SEED) * 2)[:size]
    data = pack([coefficients[reverse(index, log2_size)] for index in range(size)])
    before = data.copy()
    host_math.ntt(data, log2_size, coset=coset)
    root = curve.root_of_unity(log2_size)
    points = [shift * pow(root, index, curve.r) % curve.r for index in range(size)]
    assert unpack(data) == [evaluate(coefficients, point) for point in points]
    host_math.ntt(data, log2_size, inverse=True, coset=coset)
    assert np.array_equal(data, before)


@pytest.mark.parametrize("coset", [False, True])
def test_ntt_of_2_12_vs_direct_evaluation_at_some_points(coset):
    log2_size, rng = 12, random.Random(SEED)
    coefficients = [rng.randrange(curve.r) for _ in range(1 << log2_size)]
    data = pack([coefficients[reverse(index, log2_size)] for index in range(1 << log2_size)])
    host_math.ntt(data, log2_size, coset=coset)
    for index in (0, 1, 2047, 2048, 4095, rng.randrange(4096)):
        point = pow(curve.root_of_unity(log2_size), index, curve.r) * (curve.FR_GENERATOR if coset else 1)
        assert curve.fr_from_montgomery(data[32 * index : 32 * index + 32].tobytes()) == evaluate(coefficients, point)


def test_inverse_then_coset_forward_needs_no_reversal():
    """As in a proof: values on H become coefficients, bit-reversed, and then values on 7 H."""
    log2_size, rng = 5, random.Random(SEED)
    coefficients = [rng.randrange(curve.r) for _ in range(32)]
    root = curve.root_of_unity(log2_size)
    data = pack([evaluate(coefficients, pow(root, index, curve.r)) for index in range(32)])
    host_math.ntt(data, log2_size, inverse=True)
    assert unpack(data) == [coefficients[reverse(index, log2_size)] for index in range(32)]
    host_math.ntt(data, log2_size, coset=True)
    assert unpack(data) == [evaluate(coefficients, 7 * pow(root, index, curve.r) % curve.r) for index in range(32)]


def test_ntt_leaves_what_lies_behind_and_refuses_what_is_too_short():
    data = pack(list(range(1, 10)))
    host_math.ntt(data, 3)
    assert unpack(data)[8] == 9
    with pytest.raises(ValueError, match="need 512"):
        host_math.ntt(data, 4)


def test_quotient_vs_python_int():
    log2_size, chosen = 6, values(curve.r, 30, SEED)
    a, b, c = chosen[:64], chosen[1:65], chosen[2:66]
    data = [pack(vector) for vector in (a, b, c)]
    host_math.quotient(*data, log2_size)
    vanishing = pow(pow(curve.FR_GENERATOR, 64, curve.r) - 1, -1, curve.r)
    assert unpack(data[0]) == [(x * y - z) * vanishing % curve.r for x, y, z in zip(a, b, c, strict=True)]
    assert unpack(data[1]) == b and unpack(data[2]) == c


def test_reversed_powers_vs_python_int():
    table = host_math.reversed_powers(5, 3, 7)
    assert unpack(table.reshape(-1).view(np.uint8)) == [
        3 * pow(5, reverse(index, 7), curve.r) % curve.r for index in range(128)
    ]


POINTS = {"g1": (arkworks.G1Point, 48), "g2": (arkworks.G2Point, 96)}


def scalar(value: int) -> arkworks.Scalar:
    return arkworks.Scalar.from_le_bytes((value % curve.r).to_bytes(32, "little"))


def packed_points(points: list) -> np.ndarray:
    data = b"".join(bytes(point.to_xy_bytes_le()) for point in points)
    return field.to_montgomery(np.frombuffer(data, np.uint64).reshape(-1, 6).copy())


@pytest.mark.parametrize("group", ["g1", "g2"])
@pytest.mark.parametrize("count", [1, 2, 33, 256])
def test_msm_vs_closed_form(group, count):
    """Bases iG with scalars i m make m n (n + 1) (2 n + 1) / 6 G."""
    kind, _ = POINTS[group]
    bases, point = [], kind()
    for _ in range(count):
        bases.append(point)
        point = point + kind()
    factor = random.Random(SEED).randrange(curve.r)
    scalars = pack([index * factor for index in range(1, count + 1)])
    expected = kind() * scalar(factor * count * (count + 1) * (2 * count + 1) // 6)
    points = host_math.points(group, packed_points(bases))
    assert host_math.msm(group, points, scalars, count) == bytes(expected.to_xy_bytes_le())


@pytest.mark.parametrize("group", ["g1", "g2"])
def test_msm_of_awkward_bases_and_scalars_vs_sum(group):
    """Infinity, repeated and negated points; 0, 1 and -1; fewer than there are."""
    kind, size = POINTS[group]
    g = kind()
    bases = [g, g, -g, kind.identity(), g + g, -(g + g), g * scalar(7), g]
    scalars = [0, 1, 1, 5, curve.r - 1, curve.r - 1, 1 << 254, 3]
    points = host_math.points(group, packed_points(bases))
    for count in range(len(bases) + 1):
        expected = kind.identity()
        for base, value in zip(bases[:count], scalars[:count], strict=True):
            expected = expected + base * scalar(value)
        result = host_math.msm(group, points, pack(scalars), count)
        assert result == bytes(expected.to_xy_bytes_le())
        assert len(result) == 2 * size
    assert host_math.msm(group, points, pack(scalars), 1) == bytes(2 * size)  # 0 * G: infinity is all zeros


def test_msm_refuses_lists_that_are_too_short():
    points = host_math.points("g1", packed_points([arkworks.G1Point()] * 2))
    with pytest.raises(ValueError, match="3 of each are needed"):
        host_math.msm("g1", points, pack([1, 2, 3]), 3)
    with pytest.raises(ValueError, match="2 of each are needed"):
        host_math.msm("g1", points, pack([1]), 2)


def test_points_refuses_what_is_no_point():
    data = packed_points([arkworks.G1Point()])
    data[0] ^= 1
    with pytest.raises(ValueError):
        host_math.points("g1", data)
    with pytest.raises(ValueError, match="not a multiple of 96"):
        host_math.points("g1", data[:95])


def test_every_module_of_compiled_code_is_in_the_name_of_the_cache():
    package = Path(cuzkbench.__file__).parent
    compiling = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if "from cuzkbench.numba_cache import" in path.read_text()
    }
    assert compiling <= set(numba_cache.SOURCES)
    assert all((package / source).exists() for source in numba_cache.SOURCES)


def test_compiling_is_said_and_what_the_cache_holds_is_not():
    seen = []

    def inner(x):
        return x + 1

    fresh = numba_cache.numba.njit(inner)
    with numba_cache.announced(lambda *told: seen.append(told)):
        assert fresh(1) == fresh(2) - 1 == 2
    assert seen == [("compiling for the first start", done, 1) for done in (0, 1)]
    fresh(1.5)
    assert len(seen) == 2


def test_cache_directory_is_named_by_content_and_inherited(tmp_path):
    path = numba_cache.directory(tmp_path)
    assert path is not None and path.parent == tmp_path and path.is_dir()
    assert numba_cache.directory(path) == path


def test_an_unwritable_cache_is_a_warning_and_compiles_all_the_same(tmp_path):
    """numba alone would fail at import: 'cannot cache function: no locator available'."""
    blocker = tmp_path / "file"
    blocker.write_text("")
    code = (
        "from cuzkbench import field, bls12_381 as curve; import numpy as np;"
        "print(field.from_montgomery(np.frombuffer(curve.fr_to_montgomery(5), np.uint8).copy(), 4)[0, 0])"
    )
    environment = {"NUMBA_CACHE_DIR": str(blocker / "cache"), "HOME": str(blocker), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(cuzkbench.__file__).parents[1],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "5" and "cannot be written" in done.stderr
