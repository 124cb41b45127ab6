"""Imported instead of numba by every module of compiled code: chooses where numba keeps its results, before it starts.

numba's own choice (beside the source, else the home directory) makes the import fail where neither is writable, and
it does not notice when an inlined function of another module has changed. So the directory lies in the user's cache
(or in NUMBA_CACHE_DIR) and its name is a hash of all sources that compile.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import platformdirs

SOURCES = (
    "bls12_381.py",
    "device/host_math.py",
    "device/kernels/finish.py",
    "field.py",
    "numba_cache.py",
    "prover/circuit.py",
    "prover/fixed_base.py",
    "prover/matrices.py",
    "prover/setup.py",
    "prover/synthesis.py",
)
"""Modules whose text reaches compiled code, relative to the package."""


def directory(base: Path | None = None) -> Path | None:
    """The cache directory, made if needed; None with a warning where it cannot be written."""
    package = Path(__file__).parent
    digest = hashlib.sha256(b"".join((package / source).read_bytes() for source in SOURCES)).hexdigest()[:16]
    if base is None:
        named = os.environ.get("NUMBA_CACHE_DIR")
        base = Path(named) if named else platformdirs.user_cache_path("cuzkbench", appauthor=False) / "numba"
    path = base if base.name == digest else base / digest  # a child process inherits the full name
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError as error:
        warnings.warn(f"{path}: cannot be written ({error.strerror}), so every start compiles anew", stacklevel=2)
        return None


_PATH = directory()
if _PATH is None:
    os.environ.pop("NUMBA_CACHE_DIR", None)
else:
    os.environ["NUMBA_CACHE_DIR"] = str(_PATH)

import numba  # noqa: E402  (the variable above must be set first)

if _PATH is not None:
    numba.config.CACHE_DIR = str(_PATH)  # type: ignore[attr-defined]  # numba may have been imported by somebody else before

compiled: Any = partial(numba.njit, nogil=True, cache=_PATH is not None)
"""The decorator of every compiled function: releases the GIL, keeps its result on disk."""


def spread(work: Callable[[int, int], None], count: int, threads: int) -> None:
    """Run work(start, stop) over a split of range(count) on plain threads: numba's own aborts when called from two."""
    if threads <= 1 or count <= 1:
        return work(0, count)
    threads = min(threads, count)
    edges = [count * index // threads for index in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, edges[:-1], edges[1:]))
    return None
