"""The cuzk daemon's two clocks made one: offsets of each engine, wall time of tracing lines. For `logs/cuzk.py`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from cuzkbench.logs.cuzk_lines import Timeline, Timing, Trace

Record = Timeline | Trace | Timing
Stamped = Sequence[tuple[int | None, Record]]  # None where a line has no time
MS = 1_000_000  # ns
RESTART_MS = 10_000  # an offset that falls back by more was counted by a new engine
QUEUED = "partition synthesis complete, pushing to GPU queue"
_STARTING = "starting cuzk engine"


class Clock:
    """Offsets of one engine, or of several in turn, and wall time, as ns since the first engine's start."""

    def __init__(self, streams: Sequence[Sequence[Record]], bounded: Counter[str]) -> None:
        traces = [r for stream in streams for r in stream if isinstance(r, Trace)]
        starts = sorted({trace.utc_ns for trace in traces if trace.message.startswith(_STARTING)})
        self.sessions = [list(_sessions(stream, starts)) for stream in streams]
        queued = {_identity(t.fields.get("job_id"), t.fields): t.utc_ns for t in traces if t.message.startswith(QUEUED)}
        lengths: dict[int, int] = defaultdict(int)
        guesses: dict[int, int] = {}
        for stream, sessions in zip(streams, self.sessions, strict=True):
            for record, session in zip(stream, sessions, strict=True):
                if isinstance(record, Timeline):
                    lengths[session] = max(lengths[session], record.offset_ms * MS)
                    utc_ns = queued.get(_identity(record.job, record.fields))
                    if utc_ns is not None and record.event == "SYNTH_END":
                        guess = utc_ns - record.offset_ms * MS
                        guesses[session] = min(guess, guesses.get(session, guess))
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

    def stamps(self, index: int, stream: Sequence[Record]) -> Stamped:
        """The records of one file with their times."""
        return [(self._ns(r, s), r) for r, s in zip(stream, self.sessions[index], strict=True)]

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
