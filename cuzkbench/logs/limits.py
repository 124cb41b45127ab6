"""What a foreign file may cost before it is refused, and its bytes, unpacked where they are gzip, up to that limit.

Foreign files are untrusted: a few kilobytes can unpack to gigabytes, and a row count is whatever the file says.
Limits are raised by an option of the reader or by the environment.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuzkbench.events import LogFormatError

GZIP = b"\x1f\x8b"
CHUNK_BYTES = 4 << 20
_RATIO, _RATIO_FROM = 200, 64 << 20  # traces pack to a 15th or a 60th; deflate cannot exceed 1032


@dataclass(frozen=True)
class Limits:
    """The most bytes (unpacked) and the most rows that a reader takes from one file."""

    max_bytes: int = 4 << 30
    max_rows: int = 20_000_000

    @classmethod
    def of(cls, max_bytes: int | None = None, max_rows: int | None = None) -> Limits:
        """Options first, then CUZKBENCH_MAX_BYTES and CUZKBENCH_MAX_ROWS, then the defaults; raises ValueError."""
        limits = {}
        for name, option in (("max_bytes", max_bytes), ("max_rows", max_rows)):
            variable = f"CUZKBENCH_{name.upper()}"
            stated = os.environ.get(variable, getattr(cls, name)) if option is None else option
            try:
                limits[name] = int(stated)
            except ValueError:
                limits[name] = 0
            if limits[name] < 1:
                raise ValueError(f"{name} {stated!r} (option or {variable}): a whole number from 1")
        return cls(**limits)

    def rows(self, path: object, count: int) -> None:
        """Raise LogFormatError where a file holds more rows than the limit."""
        if count > self.max_rows:
            raise _refused(path, f"row {count:,}", f"more rows than the limit of {self.max_rows:,}", "max_rows")


def _refused(path: object, where: str, what: str, name: str) -> LogFormatError:
    return LogFormatError(
        path, where, f"{what}; raise it with the option {name} or with CUZKBENCH_{name.upper()}", "refused as a whole"
    )


class Source:
    """The bytes of one file in chunks; `cut` says afterwards where gzip data broke off, `taken` how many came out."""

    def __init__(self, path: Path, limits: Limits) -> None:
        self.path, self.limits = path, limits
        self.taken = 0
        self.cut: str | None = None

    def __iter__(self) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            packed = file.read(2) == GZIP
            file.seek(0)
            raw = iter(lambda: file.read(CHUNK_BYTES), b"")
            for chunk in self._unpack(raw) if packed else raw:
                self.taken += len(chunk)
                if self.taken > self.limits.max_bytes:
                    what = f"more bytes than the limit of {self.limits.max_bytes:,}"
                    raise _refused(self.path, f"byte {self.taken:,}", what, "max_bytes")
                yield chunk

    def _unpack(self, raw: Iterator[bytes]) -> Iterator[bytes]:
        """Gzip members one after another; never more than a chunk in memory, whatever the ratio."""
        unpacker, consumed = zlib.decompressobj(wbits=31), 0
        known = self.limits.max_bytes > Limits.max_bytes  # who raised the limit knows the file
        for data in raw:
            consumed += len(data)
            while data:
                if unpacker.eof:
                    if not data.startswith(GZIP):  # padding after the last member, as gzip allows
                        return
                    unpacker = zlib.decompressobj(wbits=31)
                chunk, damage = _inflate(unpacker, data, CHUNK_BYTES)
                data = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
                if self.taken > _RATIO_FROM and self.taken > _RATIO * consumed and not known:
                    what = f"gzip data that unpacks more than {_RATIO}-fold"
                    raise _refused(self.path, f"byte {consumed:,}", what, "max_bytes")
                if chunk:
                    yield chunk
                if damage:
                    self.cut = f"gzip data damaged before byte {consumed}: {damage}"
                    return
        if not unpacker.eof:
            self.cut = f"gzip data ends without its end marker at byte {consumed}"


def head(first: bytes) -> bytes:
    """The first bytes of a file as a reader sees them: unpacked where `first` is gzip, as far as it reaches."""
    return _inflate(zlib.decompressobj(wbits=31), first, 1 << 16)[0] if first.startswith(GZIP) else first


def _inflate(unpacker: Any, data: bytes, most: int) -> tuple[bytes, zlib.error | None]:
    """At most `most` bytes out of gzip data; before damage all that comes out of the bytes in front of it."""
    before = unpacker.copy()
    try:
        return unpacker.decompress(data, most), None
    except zlib.error as error:
        found = bytearray()
        with suppress(zlib.error):
            for byte in data:
                found += before.decompress(bytes([byte]))
                if len(found) >= most:
                    break
        return bytes(found), error


def printable(words: object) -> str:
    """Another library's words, which may quote the file's bytes, without control characters."""
    return "".join(c if c.isprintable() else " " for c in str(words))
