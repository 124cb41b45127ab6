"""Keys against Python ints and py-arkworks, and their cache against damage."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import numpy as np
import py_arkworks_bls12381 as arkworks
import pytest

from cuzkbench import bls12_381 as curve
from cuzkbench.device import host_math
from cuzkbench.prover import fixed_base, keys, setup
from cuzkbench.prover.circuit import Circuit
from cuzkbench.prover.matrices import coefficients, entries
from tests.field_values import values

SEED = 5
CIRCUIT = Circuit(8)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr("platformdirs.user_cache_path", lambda *_, **__: tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def pair() -> tuple[keys.ProvingKey, keys.VerifyingKey]:
    return keys.generate(CIRCUIT, SEED)


def same(left: object, right: object) -> bool:
    return all(np.array_equal(value, vars(right)[name]) for name, value in vars(left).items())


@pytest.mark.parametrize("group", ["g1", "g2"])
def test_fixed_base_multiples_vs_arkworks(group):
    bytes_edges = [256**window * digit for window in (1, 15, 31) for digit in (1, 2, 0x73)]
    scalars = [value % curve.r for value in [*values(curve.r, 20, SEED), *bytes_edges]]
    data = np.frombuffer(b"".join(map(curve.fr_to_montgomery, scalars)), np.uint8).copy()
    generator = arkworks.G1Point() if group == "g1" else arkworks.G2Point()
    made = host_math.points(group, fixed_base.multiples(group, data, threads=2))
    for value, point in zip(scalars, made, strict=True):
        assert point == generator * arkworks.Scalar.from_le_bytes(value.to_bytes(32, "little")), value


def test_fixed_base_of_several_batches_is_each_by_itself():
    data = np.frombuffer(b"".join(curve.fr_to_montgomery(7**index) for index in range(5000)), np.uint8).copy()
    made = fixed_base.multiples("g1", data, threads=2)
    for index in (0, 2047, 2048, 2499, 2500, 4999):
        alone = fixed_base.multiples("g1", data[32 * index : 32 * index + 32].copy(), threads=1)
        assert np.array_equal(made[96 * index : 96 * index + 96], alone), index


def test_queries_vs_python_int():
    """Every scalar of both keys, by the formulas of the paper with Lagrange's own definition."""
    size, names = CIRCUIT.constraints, ("tau", "alpha", "beta", "gamma", "delta")
    tau, alpha, beta, gamma, delta = setup._secrets(SEED, size)
    assert len({tau, alpha, beta, gamma, delta}) == len(names)
    root, vanishing = curve.root_of_unity(8), pow(tau, size, curve.r) - 1
    points = [pow(root, row, curve.r) for row in range(size)]
    lagrange = [point * vanishing * pow(size * (tau - point), -1, curve.r) % curve.r for point in points]
    assert sum(lagrange) % curve.r == 1
    table = [curve.fr_from_montgomery(row.tobytes()) for row in coefficients()]
    sums = [[0] * CIRCUIT.variables for _ in range(3)]
    for _, _, matrices in entries(CIRCUIT):
        for total, (rows, columns, factors) in zip(sums, matrices, strict=True):
            for row, column, factor in zip(rows, columns, factors, strict=True):
                total[column] += table[factor] * lagrange[row]
    a, b, c = sums
    combined = [beta * x + alpha * y + z for x, y, z in zip(a, b, c, strict=True)]
    reverse = [int(f"{index:08b}"[::-1], 2) for index in range(size)]
    expected = {
        "h": [pow(tau, index, curve.r) * vanishing * pow(delta, -1, curve.r) for index in reverse],
        "l": [value * pow(delta, -1, curve.r) for value in combined[17:]],
        "a": a,
        "b_g1": b[: CIRCUIT.b_variables],
        "b_g2": b[: CIRCUIT.b_variables],
        "ic": [value * pow(gamma, -1, curve.r) for value in combined[:17]],
        "singles_g1": [alpha, beta, delta],
        "singles_g2": [beta, gamma, delta],
    }
    assert not any(value % curve.r for value in b[CIRCUIT.b_variables :])
    scalars = setup.key_scalars(CIRCUIT, SEED)
    assert {name: group for name, (group, _) in scalars.items() if group == "g2"} == {"b_g2": "g2", "singles_g2": "g2"}
    for name, wanted in expected.items():
        found = [curve.fr_from_montgomery(row.tobytes()) for row in scalars[name][1]]
        assert found == [value % curve.r for value in wanted], name


def test_no_base_of_a_default_key_is_infinity(pair):
    for query, size in (("h", 96), ("l", 96), ("a", 96), ("b_g1", 96), ("b_g2", 192)):
        assert getattr(pair[0], query).reshape(-1, size).any(axis=1).all(), query


def test_same_seed_same_keys_and_another_seed_others(pair):
    again, other = keys.generate(CIRCUIT, SEED), keys.generate(CIRCUIT, SEED + 1)
    assert same(pair[0], again[0]) and same(pair[1], again[1])
    for name in ("h", "l", "a", "b_g1", "b_g2", "alpha_g1", "delta_g2"):
        assert not np.array_equal(getattr(pair[0], name), getattr(other[0], name)), name


def test_a_device_can_do_the_multiplications_and_progress_counts_points(pair):
    calls, seen = [], []

    def on_a_device(group: str, scalars: np.ndarray) -> np.ndarray:
        calls.append((group, len(scalars) // 32))
        return fixed_base.multiples(group, scalars, threads=1)

    made = keys.generate(CIRCUIT, SEED, on_a_device, lambda what, done, total: seen.append((what, done, total)))
    assert same(made[0], pair[0]) and same(made[1], pair[1])
    total = sum(count for _, count in calls)
    assert {group for group, _ in calls} == {"g1", "g2"}
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen) and seen[-1][1:] == (total, total)


def test_keys_come_back_from_the_cache(pair, monkeypatch):
    first = keys.load(CIRCUIT, SEED)
    monkeypatch.setattr(keys, "generate", None)  # a second generation would fail
    again = keys.load(CIRCUIT, SEED)
    assert same(first[0], again[0]) and same(first[1], again[1]) and same(first[0], pair[0])


def test_only_whole_files_appear_in_the_cache(cache, monkeypatch):
    def fail(file, **_):
        file.write(b"half a key")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(KeyboardInterrupt):
        keys.load(CIRCUIT, SEED)
    assert list((cache / "keys").iterdir()) == []


def test_a_damaged_file_is_made_anew_with_a_warning(pair):
    keys.load(CIRCUIT, SEED)
    path = keys.cache_path(CIRCUIT, SEED)
    whole = path.read_bytes()
    for data in (b"", b"not a key", whole[: len(whole) // 2], whole[:-1]):
        path.write_bytes(data)
        with pytest.warns(UserWarning, match=f"{path.name}.*damaged.*made anew"):
            again = keys.load(CIRCUIT, SEED)
        assert same(again[0], pair[0]) and same(keys.read(path, CIRCUIT, SEED)[1], pair[1])


def test_a_flipped_bit_never_gives_a_wrong_key(pair, cache):
    keys.load(CIRCUIT, SEED)
    path = keys.cache_path(CIRCUIT, SEED)
    whole, rng, noticed = path.read_bytes(), random.Random(SEED), 0
    for _ in range(300):
        bad = bytearray(whole)
        bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
        path.write_bytes(bad)
        try:
            found = keys.read(path, CIRCUIT, SEED)
        except keys.DamagedKeyError:
            noticed += 1
        else:  # in what zip says of times and rights
            assert same(found[0], pair[0]) and same(found[1], pair[1])
    assert noticed > 250


def test_keys_of_another_circuit_or_seed_are_refused(cache):
    keys.load(CIRCUIT, SEED)
    for other, seed, word in ((Circuit(9), SEED, "fingerprint"), (CIRCUIT, SEED + 1, "seed")):
        shutil.copy(keys.cache_path(CIRCUIT, SEED), keys.cache_path(other, seed))
        with pytest.raises(ValueError, match=f"keys of another circuit: {word}"):
            keys.load(other, seed)


def test_an_unwritable_cache_is_a_warning(pair, cache, monkeypatch):
    (cache / "file").write_text("")
    monkeypatch.setattr("platformdirs.user_cache_path", lambda *_, **__: cache / "file")
    with pytest.warns(UserWarning, match="cannot be written .* not kept"):
        assert same(keys.load(CIRCUIT, SEED)[0], pair[0])


def test_key_files_say_that_they_are_insecure(cache):
    keys.load(CIRCUIT, SEED)
    with np.load(keys.cache_path(CIRCUIT, SEED)) as stored:
        assert "insecure" in str(stored["identity"])


def test_estimate_grows_with_the_circuit():
    assert 0 < keys.estimate_seconds(Circuit(10)) < keys.estimate_seconds(Circuit(20))
