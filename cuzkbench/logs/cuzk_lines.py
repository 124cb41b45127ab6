"""The lines of the cuzk daemon: text with escapes, prefixes and interleaved streams -> records. For `logs/cuzk.py`.

Three vocabularies share one file or several: tracing lines (stdout, with a wall clock), TIMELINE lines (stderr,
milliseconds since the engine's start) and C lines (stderr, no time, no job, no worker).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, NamedTuple

from cuzkbench.logs.limits import Source

LINE_BYTES = 1 << 16  # longer lines are no log lines
_ESCAPES = re.compile(rb"\x1b\[[0-9;]*m")
_STAMP = rb"20[0-6]\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z\s+(?:TRACE|DEBUG|INFO|WARN|ERROR)\s"
_RECORD = re.compile(rb"TIMELINE,|CUZK_TIMING:|CUZK_NTT_H:|" + _STAMP)
_TIMELINE = re.compile(r"TIMELINE,(\d{1,11}),([A-Z_]+),(.*?),((?:partition|kind|synth_ms|worker)=.*|monolithic)$")
_TRACE = re.compile(r"(\S{26})Z\s+[A-Z]+\s+(?:(.*?): )?([a-z_]\w*(?:::\w+)*): (.*)$")
_SPAN = re.compile(r"gpu_worker\{(.*?)\}")
_FIELD = re.compile(r'\b(\w{1,40})=("(?:[^"\\]|\\.)*"|.*?)(?=,?\s\w{1,40}=|$)')
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WHOLE = re.compile(r"(?:Some\()?(-?\d{1,11})(?:ms)?\)?")


class Timeline(NamedTuple):
    """One TIMELINE line."""

    offset_ms: int
    event: str
    job: str
    fields: dict[str, Any]


class Trace(NamedTuple):
    """One tracing line; `utc_ns` since 1970, `span` the fields of its gpu_worker span."""

    utc_ns: int
    message: str
    span: dict[str, Any]
    fields: dict[str, Any]


class Timing(NamedTuple):
    """One C line: CUZK_TIMING or CUZK_NTT_H (`ntt`)."""

    ntt: bool
    fields: dict[str, Any]


class Lines:
    """Iterate for the records of one file in order; `ended` says then whether its last line did. Others are counted."""

    def __init__(self, source: Source, dropped: Counter[str]) -> None:
        self.source, self.dropped = source, dropped
        self.ended = True

    def __iter__(self) -> Iterator[Timeline | Trace | Timing]:
        for line in self._lines():
            text = _ESCAPES.sub(b"", _inner(line))
            starts = [found.start() for found in _RECORD.finditer(text)]
            self.dropped["line ends between two outputs, put back"] += max(0, len(starts) - 1)
            self.dropped["lines that are no record"] += not starts and bool(text.strip())
            for start, end in pairwise([*starts, len(text)]):
                record = _parse(text[start:end].decode("utf-8", "replace").strip())
                if record is not None:
                    yield record
                else:
                    self.dropped["records that cannot be read"] += 1

    def _lines(self) -> Iterator[bytes]:
        rest = b""
        for chunk in self.source:
            *whole, rest = (rest + chunk).split(b"\n")
            rest = rest[: LINE_BYTES + 1]  # as much as tells that it is too long
            for line in whole:
                if len(line) <= LINE_BYTES:
                    yield line
                else:
                    self.dropped["lines longer than any log line"] += 1
        self.ended = not rest
        if rest:
            yield rest


def _inner(line: bytes) -> bytes:
    """What a Docker json-file line wraps, other lines as they are."""
    if line.startswith(b'{"log":'):
        try:
            return str(json.loads(line)["log"]).encode("utf-8", "replace")
        except (ValueError, KeyError, RecursionError):
            return line
    return line


def fields(text: str) -> dict[str, Any]:
    """`k=v` parts: whole numbers (also `Some(3)` and `3ms`) as int, `None` as None, the rest as text."""
    found: dict[str, Any] = {}
    for key, value in _FIELD.findall(text):
        number = _WHOLE.fullmatch(value)
        found[key] = int(number[1]) if number else None if value == "None" else value.strip('"')
    return found


def _parse(text: str) -> Timeline | Trace | Timing | None:
    if text.startswith("CUZK_"):
        return Timing(text.startswith("CUZK_NTT_H"), fields(text))
    if text.startswith("TIMELINE"):
        found = _TIMELINE.match(text)
        if found is None:
            return None
        return Timeline(int(found[1]), found[2], found[3], fields(found[4].replace(",", " ")))
    found = _TRACE.match(text)
    if found is None:
        return None
    try:
        instant = datetime.fromisoformat(f"{found[1]}+00:00")
    except ValueError:
        return None
    span = _SPAN.search(found[2] or "")
    return Trace(
        (instant - _EPOCH) // timedelta(microseconds=1) * 1000,
        found[4],
        fields(span[1]) if span else {},
        fields(found[4]),
    )
