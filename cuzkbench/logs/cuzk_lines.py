"""The lines of the cuzk daemon: text with escapes, prefixes and interleaved streams -> records. For `logs/cuzk.py`.

Three vocabularies share one file or several: tracing lines (stdout, with a wall clock), TIMELINE lines (stderr,
milliseconds since the engine's start) and C lines (stderr, no time, no job, no worker). `Clock` joins their clocks.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, NamedTuple

from cuzkbench.logs.limits import Source

MS = 1_000_000  # ns
RESTART_MS = 10_000  # an offset that falls back by more was counted by a new engine
QUEUED = "partition synthesis complete, pushing to GPU queue"
NEVER = 2**62  # ns
_STARTING = "starting cuzk engine"
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


Record = Timeline | Trace | Timing
Stamped = list[tuple[int | None, Record]]  # ns since the first engine's start, None where a line has no time


def records(source: Source, dropped: Counter[str]) -> Iterator[Record]:
    """The records of one file in order, other lines counted; a last line that does not end is a cut of the source."""
    for line in _lines(source, dropped):
        text = _ESCAPES.sub(b"", _inner(line))
        starts = [found.start() for found in _RECORD.finditer(text)]
        dropped["line ends between two outputs, put back"] += max(0, len(starts) - 1)
        dropped["lines that are no record"] += not starts and bool(text.strip())
        for start, end in pairwise([*starts, len(text)]):
            record = _parse(text[start:end].decode("utf-8", "replace").strip())
            if record is not None:
                yield record
            else:
                dropped["records that cannot be read"] += 1


def _lines(source: Source, dropped: Counter[str]) -> Iterator[bytes]:
    rest = b""
    for chunk in source:
        *whole, rest = (rest + chunk).split(b"\n")
        rest = rest[: LINE_BYTES + 1]  # as much as tells that it is too long
        yield from (line for line in whole if len(line) <= LINE_BYTES)
        dropped["lines longer than any log line"] += sum(len(line) > LINE_BYTES for line in whole)
    if rest:
        source.cut = source.cut or "the last line does not end"
        yield rest


def _inner(line: bytes) -> bytes:
    """What a Docker json-file line wraps, other lines as they are."""
    if line.startswith(b'{"log":'):
        try:
            return str(json.loads(line)["log"]).encode("utf-8", "replace")
        except (ValueError, KeyError, RecursionError):
            return line
    return line


def _fields(text: str) -> dict[str, Any]:
    """`k=v` parts: whole numbers (also `Some(3)` and `3ms`) as int, `None` as None, the rest as text."""
    found: dict[str, Any] = {}
    for key, value in _FIELD.findall(text):
        number = _WHOLE.fullmatch(value)
        found[key] = int(number[1]) if number else None if value == "None" else value.strip('"')
    return found


def _parse(text: str) -> Record | None:
    if text.startswith("CUZK_"):
        return Timing(text.startswith("CUZK_NTT_H"), _fields(text))
    if text.startswith("TIMELINE"):
        found = _TIMELINE.match(text)
        if found is None:
            return None
        return Timeline(int(found[1]), found[2], found[3], _fields(found[4].replace(",", " ")))
    found = _TRACE.match(text)
    if found is None:
        return None
    try:
        instant = datetime.fromisoformat(f"{found[1]}+00:00")
    except ValueError:
        return None
    span = _SPAN.search(found[2] or "")
    utc_ns = (instant - _EPOCH) // timedelta(microseconds=1) * 1000
    return Trace(utc_ns, found[4], _fields(span[1]) if span else {}, _fields(found[4]))


class Clock:
    """Offsets of one engine, or of several in turn, and wall time, as ns since the first engine's start."""

    def __init__(self, streams: Sequence[Sequence[Record]], bounded: Counter[str]) -> None:
        traces = [r for stream in streams for r in stream if isinstance(r, Trace)]
        starts = sorted({trace.utc_ns for trace in traces if trace.message.startswith(_STARTING)})
        told = [list(zip(stream, _sessions(stream, starts), strict=True)) for stream in streams]
        queued = {_identity(t.fields.get("job_id"), t.fields): t.utc_ns for t in traces if t.message.startswith(QUEUED)}
        lengths: dict[int, int] = {}
        guesses: dict[int, int] = {}  # of an engine's start, from lines that both clocks stamped
        for record, session in (pair for stream in told for pair in stream):
            if isinstance(record, Timeline):
                offset = record.offset_ms * MS
                lengths[session] = max(lengths.get(session, 0), offset)
                utc_ns = queued.get(_identity(record.job, record.fields))
                if utc_ns is not None and record.event == "SYNTH_END":
                    guesses[session] = min(utc_ns - offset, guesses.get(session, NEVER))
        self.anchors = dict(enumerate(starts))
        follows = min((trace.utc_ns for trace in traces), default=0)
        for session, length in sorted(lengths.items()):
            if session not in self.anchors:
                self.anchors[session] = guesses.get(session, follows)
                what = "dated by its synthesis lines" if session in guesses else "put after what was before it"
                bounded[f"engines whose start is missing: {what}"] += 1
            follows = self.anchors[session] + length + 1000 * MS
        self.zero = min(self.anchors.values(), default=follows)
        self.utc_ns = self.zero if traces else None
        self.stamped: list[Stamped] = [[(self._ns(r, session), r) for r, session in stream] for stream in told]

    def _ns(self, record: Record, session: int) -> int | None:
        if isinstance(record, Timeline):
            return self.anchors[session] - self.zero + record.offset_ms * MS
        return record.utc_ns - self.zero if isinstance(record, Trace) else None


def _identity(job: Any, fields: dict[str, Any]) -> tuple[Any, ...]:
    return job, fields.get("partition"), fields.get("synth_ms")


def _sessions(stream: Sequence[Record], starts: list[int]) -> Iterator[int]:
    """For each record the number of its engine: -1 is one that ran before the first start line of its file."""
    own = any(isinstance(r, Trace) and r.utc_ns in starts and r.message.startswith(_STARTING) for r in stream)
    session, high = -1 if own else 0, 0
    for record in stream:
        if isinstance(record, Trace) and record.message.startswith(_STARTING):
            session, high = starts.index(record.utc_ns), 0
        elif isinstance(record, Timeline):
            if not own and record.offset_ms + RESTART_MS < high:
                session, high = session + 1, 0
            high = max(high, record.offset_ms)
        yield session
