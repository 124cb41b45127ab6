"""Groth16 keys of a circuit from a seed: INSECURE by design, since whoever knows the seed can forge proofs.

They are for measurement: the same for every run of a circuit, so they are made once and kept in the user's cache.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
import time
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs

from cuzkbench.outputs import replacing
from cuzkbench.progress import Progress
from cuzkbench.prover.circuit import Circuit
from cuzkbench.prover.fixed_base import multiples
from cuzkbench.prover.setup import key_scalars

FixedBase = Callable[[str, np.ndarray], np.ndarray]
"""(group, scalars as Fr Montgomery bytes) -> those multiples of the generator as affine Montgomery bytes."""

FORMAT = 1
INSECURE = "insecure: made from a seed, for measurement only"
QUIET_LOG2 = 16
"""Largest key that the host makes without saying first how long it will take."""
_SLICE, _DEVICE_SLICE = 1 << 15, 1 << 20  # multiples between two reports of progress, by the host and by a device
_KEPT_BYTES = 1 << 30  # of a device's keys: it makes larger ones faster than a disk gives them back


class DamagedKeyError(OSError):
    """A key file that is cut or altered."""


@dataclass(frozen=True)
class ProvingKey:
    """All a prover needs: affine points as Montgomery bytes (uint8, one dimension)."""

    h: np.ndarray  # G1, n points, tau^i Z(tau) / delta in bit-reversed order of i
    l: np.ndarray  # G1, one a private variable  # noqa: E741 (the query's name in every text on Groth16)
    a: np.ndarray  # G1, one a variable
    b_g1: np.ndarray  # one for each of the circuit's b_variables
    b_g2: np.ndarray
    alpha_g1: np.ndarray
    beta_g1: np.ndarray
    beta_g2: np.ndarray
    delta_g1: np.ndarray
    delta_g2: np.ndarray


@dataclass(frozen=True)
class VerifyingKey:
    """All a verifier needs: affine points as Montgomery bytes (uint8, one dimension)."""

    alpha_g1: np.ndarray
    beta_g2: np.ndarray
    gamma_g2: np.ndarray
    delta_g2: np.ndarray
    ic: np.ndarray  # G1, the constant 1 and each public input


def generate(
    circuit: Circuit, seed: int, fixed_base: FixedBase | None = None, progress: Progress | None = None
) -> tuple[ProvingKey, VerifyingKey]:
    """Both keys of a circuit; fixed_base lets a device do the multiplications, else all cores do.

    Progress counts points. Cost on the host: `estimate_seconds`.
    """
    scalars = key_scalars(circuit, seed)
    total, done = sum(len(values) for _, values in scalars.values()), 0
    size = _SLICE if fixed_base is None else _DEVICE_SLICE
    made: dict[str, np.ndarray] = {}
    for name, (group, values) in scalars.items():
        parts = []
        for start in range(0, len(values), size):
            part = np.ascontiguousarray(values[start : start + size])
            parts.append((fixed_base or multiples)(group, part.reshape(-1).view(np.uint8)))
            done += len(part)
            if progress is not None:
                progress("key generation", done, total)
        made[name] = np.concatenate(parts)
    made["alpha_g1"], made["beta_g1"], made["delta_g1"] = np.split(made.pop("singles_g1"), 3)
    made["beta_g2"], made["gamma_g2"], made["delta_g2"] = np.split(made.pop("singles_g2"), 3)
    return _keys(made)


def _keys(arrays: dict[str, np.ndarray]) -> tuple[ProvingKey, VerifyingKey]:
    proving, verifying = ({field.name: arrays[field.name] for field in fields(k)} for k in (ProvingKey, VerifyingKey))
    return ProvingKey(**proving), VerifyingKey(**verifying)


def cache_path(circuit: Circuit, seed: int) -> Path:
    """Where the keys of a circuit and seed are kept."""
    name = hashlib.sha256(f"{FORMAT} {circuit.fingerprint()} {seed}".encode()).hexdigest()[:32]
    return platformdirs.user_cache_path("cuzkbench", appauthor=False) / "keys" / f"{name}.npz"


def load(
    circuit: Circuit, seed: int, progress: Progress | None = None, fixed_base: FixedBase | None = None
) -> tuple[ProvingKey, VerifyingKey]:
    """The keys from the cache, else generated and kept there for the next time.

    Keys that a device made are kept up to 1 GiB; what the host takes long for is said first on stderr.
    A damaged file is made anew with a warning, as is said where the cache cannot be written; a file that holds the
    keys of another circuit or seed raises ValueError.
    """
    path = cache_path(circuit, seed)
    if path.exists():
        try:
            return read(path, circuit, seed)
        except OSError as error:
            warnings.warn(f"{error}; the keys are made anew", stacklevel=2)
    if fixed_base is None and circuit.log2_size > QUIET_LOG2:
        seconds = estimate_seconds(circuit)
        print(f"making the keys of 2^{circuit.log2_size} on the host: about {seconds:,.0f} s", file=sys.stderr)
    keys = generate(circuit, seed, fixed_base, progress)
    arrays = vars(keys[0]) | vars(keys[1])
    if fixed_base is not None and sum(array.nbytes for array in arrays.values()) > _KEPT_BYTES:
        return keys
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        members: dict[str, Any] = {"identity": np.array(json.dumps(_identity(circuit, seed))), **arrays}
        with replacing(path) as new, new.open("wb") as file:
            np.savez(file, **members)
    except OSError as error:
        warnings.warn(f"{path}: cannot be written ({error.strerror}), so the keys are not kept", stacklevel=2)
    return keys


def _identity(circuit: Circuit, seed: int) -> dict[str, object]:
    return {"format": FORMAT, "fingerprint": circuit.fingerprint(), "seed": seed, "label": INSECURE}


def read(path: Path, circuit: Circuit, seed: int) -> tuple[ProvingKey, VerifyingKey]:
    """The keys of a file; raises ValueError where they are another circuit's, DamagedKeyError where it is damaged."""
    try:
        with zipfile.ZipFile(path), np.load(path) as stored:  # compares each member's checksum as it reads
            arrays = {name: stored[name] for name in stored.files}
        found, wanted = json.loads(str(arrays.pop("identity"))), _identity(circuit, seed)
        keys = _keys(arrays)
    except (zipfile.BadZipFile, ValueError, KeyError, EOFError, NotImplementedError, RuntimeError) as error:
        raise DamagedKeyError(f"{path}: damaged: {error}") from error
    for name, value in wanted.items():
        if found.get(name) != value:
            what = f"{name} {found.get(name)!r} instead of {value!r}"
            raise ValueError(f"{path}: keys of another circuit: {what}; remove the file, and they are made anew")
    return keys


def estimate_seconds(circuit: Circuit) -> float:
    """Seconds that `generate` takes on this machine's cores, from timing 4096 multiples in each group."""
    scalars = np.frombuffer(random.Random(1).randbytes(32 * 4096), np.uint8).copy()
    scalars[31::32] &= 0x3F  # below the order
    cost = {}
    for group in ("g1", "g2"):
        multiples(group, scalars[: 32 * 64])  # table and compilation
        start = time.perf_counter()
        multiples(group, scalars)
        cost[group] = (time.perf_counter() - start) / 4096
    in_g1 = circuit.constraints + 2 * circuit.variables + circuit.b_variables
    return in_g1 * cost["g1"] + circuit.b_variables * cost["g2"] + circuit.constraints * 1e-6
