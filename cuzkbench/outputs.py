"""What is written: refused before any work where that cannot be done, and whole or not there at all."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

try:
    import fcntl
except ImportError:  # Windows, where nobody is told of a second writer
    fcntl = None  # type: ignore[assignment]

LOGS = (".jsonl", ".parquet")


def check(path: Path, suffixes: Sequence[str] = (), inputs: Iterable[Path] = ()) -> None:
    """Raise where `path` could not be written, and leave it as it is.

    ValueError for a name without one of the suffixes, for a link, device or pipe, and for a file that the same command
    reads; OSError for its place.
    """
    if suffixes and path.suffix not in suffixes:
        raise ValueError(f"output {str(path)!r}: a name that ends in {' or '.join(suffixes)}")
    if path.is_symlink() or (path.exists() and not path.is_file() and not path.is_dir()):
        raise ValueError(f"output {str(path)!r}: a link, device or pipe, whose place the new file would take")
    if not path.exists():
        with path.open("ab"):
            pass
        path.unlink()
        return
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if any(given.exists() and path.samefile(given) for given in inputs):
        raise ValueError(f"output {str(path)!r}: a file that is read; take another name")
    with path.open("ab"), tempfile.TemporaryFile(dir=path.parent):
        pass  # new files are made beside the old one, which they then replace


def growing(path: Path) -> TextIO:
    """An empty text file that is read while it grows; OSError where another process has it open by this function too.

    Two runs that wrote into one file would mix their lines.
    """
    file = path.open("a", encoding="utf-8")
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise OSError(errno.EBUSY, "another run is writing it", str(path)) from None
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP):  # a file system that knows no locks
            file.close()
            raise
    file.truncate(0)
    return file


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """An empty file beside `path` to be written, which takes its place at the end; after an exception nothing does."""
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    try:
        yield Path(temporary)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)  # an interrupt may come when it has taken its place
        raise
