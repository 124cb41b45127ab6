"""A proof, its public inputs and its verifying key as the JSON files that `snarkjs groth16 verify` reads.

Format: snarkjs 0.7, `"curve": "bls12381"`; projective coordinates as decimal strings, c0 before c1.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cuzkbench import bls12_381 as curve
from cuzkbench.prover.groth16 import Proof
from cuzkbench.prover.keys import VerifyingKey

FILES = ("verification_key.json", "public.json", "proof.json")
_KIND = {"protocol": "groth16", "curve": "bls12381"}


def key_json(key: VerifyingKey) -> dict[str, Any]:
    """The verifying key."""
    ic = [key.ic[start : start + curve.G1_BYTES] for start in range(0, key.ic.nbytes, curve.G1_BYTES)]
    return _KIND | {
        "nPublic": len(ic) - 1,
        "vk_alpha_1": _g1(_canonical(key.alpha_g1)),
        "vk_beta_2": _g2(_canonical(key.beta_g2)),
        "vk_gamma_2": _g2(_canonical(key.gamma_g2)),
        "vk_delta_2": _g2(_canonical(key.delta_g2)),
        "IC": [_g1(_canonical(point)) for point in ic],
    }


def proof_json(proof: bytes) -> dict[str, Any]:
    """A compressed proof; raises ValueError where its points are not in their groups."""
    points = Proof.from_bytes(proof)
    a, b, c = (_integers(bytes(point.to_xy_bytes_le())) for point in (points.a, points.b, points.c))
    return _KIND | {"pi_a": _g1(a), "pi_b": _g2(b), "pi_c": _g1(c)}


def write(folder: Path, key: VerifyingKey, public: Sequence[int], proof: bytes) -> list[Path]:
    """Write the three FILES into an existing folder; returns their paths in the order that snarkjs takes them."""
    contents = (key_json(key), [str(value) for value in public], proof_json(proof))
    paths = [folder / name for name in FILES]
    for path, content in zip(paths, contents, strict=True):
        path.write_text(json.dumps(content, indent=1) + "\n")
    return paths


def _integers(data: bytes) -> list[int]:
    size = curve.FP_BYTES
    return [int.from_bytes(data[start : start + size], "little") for start in range(0, len(data), size)]


def _canonical(point: np.ndarray) -> list[int]:
    data, size = point.tobytes(), curve.FP_BYTES
    return [curve.fp_from_montgomery(data[start : start + size]) for start in range(0, len(data), size)]


def _g1(coordinates: list[int]) -> list[str]:
    if not any(coordinates):
        return ["0", "1", "0"]
    return [str(value) for value in (*coordinates, 1)]


def _g2(coordinates: list[int]) -> list[list[str]]:
    if not any(coordinates):
        return [["0", "0"], ["1", "0"], ["0", "0"]]
    x0, x1, y0, y1 = (str(value) for value in coordinates)
    return [[x0, x1], [y0, y1], ["1", "0"]]
