"""Our proof before a verifier that nobody here wrote: snarkjs, run as a program."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import platformdirs
import pytest

from cuzkbench import bls12_381 as curve
from cuzkbench.prover import keys
from cuzkbench.prover.circuit import Circuit
from cuzkbench.prover.synthesis import public_inputs, synthesise
from tests import snarkjs_files
from tests.plain_device import prove

VERSION = "0.7.5"
CIRCUIT = Circuit(8)


@pytest.fixture(scope="module")
def program() -> list[str]:
    """snarkjs of one version, installed once into the user's cache."""
    for needed in ("node", "npm"):
        if shutil.which(needed) is None:
            pytest.skip(f"{needed} is not installed")
    folder = platformdirs.user_cache_path("cuzkbench-tests", appauthor=False) / f"snarkjs-{VERSION}"
    script = folder / "node_modules" / "snarkjs" / "build" / "cli.cjs"
    if not script.exists():
        folder.mkdir(parents=True, exist_ok=True)
        install = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), f"snarkjs@{VERSION}"]
        done = subprocess.run(install, capture_output=True, text=True, timeout=300)
        if done.returncode:
            pytest.skip(f"npm could not install snarkjs {VERSION}: {done.stderr.strip().splitlines()[-1:]}")
    return ["node", str(script)]


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> list[Path]:
    proving, verifying = keys.generate(CIRCUIT, 1)
    vectors = np.zeros(CIRCUIT.partition_bytes, np.uint8)
    synthesise(CIRCUIT, 2, 0, vectors)
    proof = prove(CIRCUIT, proving, vectors, 12345, 67890)
    return snarkjs_files.write(tmp_path_factory.mktemp("snarkjs"), verifying, public_inputs(CIRCUIT, vectors), proof)


def verify(program: list[str], paths: list[Path]) -> tuple[int, str]:
    done = subprocess.run(
        [*program, "groth16", "verify", *map(str, paths)], capture_output=True, text=True, timeout=120
    )
    return done.returncode, done.stdout + done.stderr


def test_snarkjs_accepts_the_proof(program, exported):
    status, text = verify(program, exported)
    assert status == 0 and "OK!" in text, text


@pytest.mark.parametrize("index", [0, CIRCUIT.public_inputs - 1])
def test_snarkjs_rejects_it_with_one_public_input_changed(program, exported, tmp_path, index):
    key, public, proof = exported
    values = json.loads(public.read_text())
    values[index] = str((int(values[index]) + 1) % curve.r)
    changed = tmp_path / "public.json"
    changed.write_text(json.dumps(values))
    status, text = verify(program, [key, changed, proof])
    assert status == 1 and "Invalid proof" in text, text


def test_exported_files_say_what_they_are(exported):
    key, public, proof = (json.loads(path.read_text()) for path in exported)
    assert key["curve"] == proof["curve"] == "bls12381" and key["protocol"] == proof["protocol"] == "groth16"
    assert key["nPublic"] == len(public) == len(key["IC"]) - 1 == CIRCUIT.public_inputs


def test_exported_points_are_on_their_curves(exported):
    key, _, proof = (json.loads(path.read_text()) for path in exported)
    for x, y, z in (proof["pi_a"], proof["pi_c"], key["vk_alpha_1"], *key["IC"]):
        assert z == "1" and (int(y) ** 2 - int(x) ** 3 - curve.G1_B) % curve.p == 0

    def times(left, right):
        return left[0] * right[0] - left[1] * right[1], left[0] * right[1] + left[1] * right[0]

    for point in (proof["pi_b"], key["vk_beta_2"], key["vk_gamma_2"], key["vk_delta_2"]):
        x, y, z = (tuple(map(int, part)) for part in point)
        cube, square = times(times(x, x), x), times(y, y)
        assert z == (1, 0)
        assert all((square[part] - cube[part] - curve.G2_B[part]) % curve.p == 0 for part in (0, 1))
