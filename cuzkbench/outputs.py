"""What a command is about to write: refused before any work where that cannot be done."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

LOGS = (".jsonl", ".parquet")


def check(path: Path, suffixes: Sequence[str] = (), inputs: Iterable[Path] = ()) -> None:
    """Raise where `path` could not be written, and leave it as it is.

    ValueError for a name without one of the suffixes, for a device or pipe, and for a file that is read by the same
    command; OSError for its place.
    """
    if suffixes and path.suffix not in suffixes:
        raise ValueError(f"output {str(path)!r}: a name that ends in {' or '.join(suffixes)}")
    if not path.exists():
        with path.open("ab"):
            pass
        path.unlink()
        return
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not path.is_file():
        raise ValueError(f"output {str(path)!r}: not a regular file, and the new file would take its place")
    if any(given.exists() and path.samefile(given) for given in inputs):
        raise ValueError(f"output {str(path)!r}: a file that is read; take another name")
    with path.open("ab"), tempfile.TemporaryFile(dir=path.parent):
        pass  # new files are made beside the old one, which they then replace
