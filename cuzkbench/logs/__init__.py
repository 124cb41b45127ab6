"""Logs of any format into one record: `read(path)` recognises a file by its content, not by its name.

Each format is a module with `sniff(head: bytes, path) -> bool` and `read(path, *more, **options) -> Log`, imported
when a file is read.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cuzkbench.logs.log import Log

FORMATS: dict[str, str] = {  # in the order in which they are asked
    "native": "cuzkbench.logs.native",
    "nsight": "cuzkbench.logs.nsight",
    "chrome": "cuzkbench.logs.chrome",
    "cuzk": "cuzkbench.logs.cuzk",
}
HEAD_BYTES = 1 << 16
SEVERAL = "cuzk"  # the only format whose log may lie in several files, and that asks for partition_bytes


def recognise(path: str | Path) -> str | None:
    """The format of a file by its first bytes, None where no reader knows it."""
    file = Path(path)
    with file.open("rb") as opened:
        head = opened.read(HEAD_BYTES)
    return next((name for name, module in FORMATS.items() if import_module(module).sniff(head, file)), None)


def read(path: str | Path, *more: str | Path, format: str | None = None, **options: Any) -> Log:
    """The log in a file (some formats: in several), recognised or of the named format.

    Options go to the format's reader. Raises OSError for a file that cannot be opened, LogFormatError for one that
    cannot be read, ValueError for an unknown format and for several files or options that the format does not take.
    """
    from cuzkbench.events import LogFormatError

    if format is not None and format not in FORMATS:
        raise ValueError(f"format {format!r}: one of {', '.join(FORMATS)}")
    file = Path(path)
    if file.stat().st_size == 0:
        raise LogFormatError(path, "byte 0", "the file is empty")
    chosen = format or recognise(file)
    if chosen is None:
        raise LogFormatError(path, "byte 0", f"not a log of a known format: {', '.join(FORMATS)}")
    if chosen != SEVERAL and (more or "partition_bytes" in options):
        asked = f"{len(more) + 1} files" if more else "partition_bytes"
        raise ValueError(f"{asked}: only a {SEVERAL} log can have that, and {file} is a {chosen} log")
    return import_module(FORMATS[chosen]).read(file, *map(Path, more), **options)
