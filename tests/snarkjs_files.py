"""A proof, its public inputs and its verifying key as the JSON files that `snarkjs groth16 verify` reads.

Format: snarkjs 0.7, `"curve": "bls12381"`; projective coordinates as decimal strings, c0 before c1.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cuzkbench.device.host_math import points
from cuzkbench.prover.groth16 import Proof
from cuzkbench.prover.keys import VerifyingKey

_KIND = {"protocol": "groth16", "curve": "bls12381"}


def write(folder: Path, key: VerifyingKey, public: Sequence[int], proof: bytes) -> list[Path]:
    """Write the three files into an existing folder; returns their paths in the order that snarkjs takes them."""
    read, ic = Proof.from_bytes(proof), points("g1", key.ic)
    contents = {
        "verification_key.json": _KIND
        | {
            "nPublic": len(ic) - 1,
            "vk_alpha_1": _g1(points("g1", key.alpha_g1)[0]),
            "vk_beta_2": _g2(points("g2", key.beta_g2)[0]),
            "vk_gamma_2": _g2(points("g2", key.gamma_g2)[0]),
            "vk_delta_2": _g2(points("g2", key.delta_g2)[0]),
            "IC": [_g1(point) for point in ic],
        },
        "public.json": [str(value) for value in public],
        "proof.json": _KIND | {"pi_a": _g1(read.a), "pi_b": _g2(read.b), "pi_c": _g1(read.c)},
    }
    for name, content in contents.items():
        (folder / name).write_text(json.dumps(content, indent=1) + "\n")
    return [folder / name for name in contents]


def _coordinates(point: Any) -> list[str]:
    data = bytes(point.to_xy_bytes_le())
    return [str(int.from_bytes(data[start : start + 48], "little")) for start in range(0, len(data), 48)]


def _g1(point: Any) -> list[str]:
    """None of ours is infinity."""
    return [*_coordinates(point), "1"]


def _g2(point: Any) -> list[list[str]]:
    x0, x1, y0, y1 = _coordinates(point)
    return [[x0, x1], [y0, y1], ["1", "0"]]
