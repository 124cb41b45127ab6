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
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import platformdirs

from cuzkbench.progress import Progress

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
from numba.core import event  # noqa: E402

if _PATH is not None:
    numba.config.CACHE_DIR = str(_PATH)  # type: ignore[attr-defined]  # numba may have been imported by somebody else before

compiled: Any = partial(numba.njit, nogil=True, cache=_PATH is not None)
"""The decorator of every compiled function: releases the GIL, keeps its result on disk."""


class _Compiling(event.Listener):
    def __init__(self, progress: Progress) -> None:
        self._progress, self._begun, self._done = progress, 0, 0

    def on_start(self, _: object) -> None:
        self._begun += 1
        self._progress("compiling for the first start", self._done, self._begun)

    def on_end(self, _: object) -> None:
        self._done += 1
        self._progress("compiling for the first start", self._done, self._begun)


def announced(progress: Progress) -> AbstractContextManager[None]:
    """While the context lasts, say how many functions are compiled, of those begun: 10 s or so with an empty cache."""
    told: AbstractContextManager[None] = event.install_listener("numba:compile", _Compiling(progress))
    return told


def spread(work: Callable[[int, int], None], count: int, threads: int) -> None:
    """Run work(start, stop) over a split of range(count) on plain threads: numba's own aborts when called from two."""
    threads = max(1, min(threads, count))
    edges = [count * index // threads for index in range(threads + 1)]
    if threads == 1:
        work(*edges)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, edges[:-1], edges[1:]))
