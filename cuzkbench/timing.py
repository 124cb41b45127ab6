"""The timing hooks: worker threads append tuples, one writer thread turns them into the native JSON Lines log.

A span is a `__slots__` class and an append (about 1 µs); JSON, clock arithmetic, device event times and flushing
are the writer's. Rows are on disk within `FLUSH_S`, so that a killed run leaves a readable log.
"""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, TextIO

from cuzkbench.device.base import Event as Mark
from cuzkbench.device.base import Stream
from cuzkbench.events import Clock, Event, Lane, Memory, Phase
from cuzkbench.outputs import growing

FLUSH_S = 0.05
COMPLETIONS = frozenset({Phase.FINISH, Phase.VERIFY})  # all that a run without hooks records
_OFF: AbstractContextManager[None] = nullcontext()


class Ranges(Protocol):
    """Named ranges for a profiler, such as `cupy.cuda.nvtx`."""

    def RangePush(self, name: str) -> object:
        """Open a range on the calling thread."""

    def RangePop(self) -> object:
        """Close the latest one."""


@contextmanager
def _named(ranges: Ranges, name: str) -> Iterator[None]:
    ranges.RangePush(name)
    try:
        yield
    finally:
        ranges.RangePop()


class Span:
    """One interval of a thread, recorded when the `with` block ends, also by an exception."""

    __slots__ = ("_name", "_phase", "_scope", "start_ns")

    def __init__(self, scope: Scope, phase: Phase, name: str) -> None:
        self._scope, self._phase, self._name = scope, phase, name

    def __enter__(self) -> None:
        ranges = self._scope.recorder.ranges
        if ranges is not None:
            ranges.RangePush(self._name)
        self.start_ns = self._scope.recorder.clock()

    def __exit__(self, *_: object) -> None:
        recorder = self._scope.recorder
        recorder.rows.append((self._scope, self._phase, Lane.CPU, self._name, self.start_ns, recorder.clock()))
        if recorder.ranges is not None:
            recorder.ranges.RangePop()


class Scope:
    """Whose time it is: the identity that every row made through this object carries."""

    __slots__ = ("gpu", "job", "partition", "recorder", "warmup", "worker")

    def __init__(self, recorder: Recorder, job: str, partition: int, gpu: int, worker: int, warmup: bool) -> None:
        self.recorder, self.job, self.partition = recorder, job, partition
        self.gpu, self.worker, self.warmup = gpu, worker, warmup

    def on(self, gpu: int, worker: int) -> Scope:
        """The same partition after a worker has picked it up."""
        return Scope(self.recorder, self.job, self.partition, gpu, worker, self.warmup)

    def span(self, phase: Phase, name: str) -> AbstractContextManager[None]:
        """A CPU interval around a `with` block."""
        return Span(self, phase, name) if self.recorder.timing or phase in COMPLETIONS else _OFF

    def range(self, name: str) -> AbstractContextManager[None]:
        """A profiler's range around a `with` block, without a row."""
        ranges = self.recorder.ranges
        return _OFF if ranges is None else _named(ranges, name)

    def add(self, phase: Phase, lane: Lane, name: str, start_ns: int, end_ns: int) -> None:
        """An interval whose ends the caller took from the recorder's clock."""
        if self.recorder.timing or phase in COMPLETIONS:
            self.recorder.rows.append((self, phase, lane, name, start_ns, end_ns))

    def mark(self, stream: Stream) -> Mark | None:
        """An event on a stream, or None in a run without hooks."""
        return stream.record() if self.recorder.timing else None

    def between(
        self,
        phase: Phase,
        lane: Lane,
        name: str,
        marks: tuple[Mark | int | None, Mark | int | None],
        stream: int,
        nbytes: int = 0,
        memory: Memory = Memory.NONE,
    ) -> None:
        """A device interval between two marks or instants, once their stream was synchronised without an error."""
        start, end = marks
        if start is not None and end is not None:
            self.recorder.rows.append((self, phase, lane, name, start, end, nbytes, memory, stream))


class Recorder:
    """Collects rows from all threads from its making on, and writes them once `open` gave it a file.

    `clock` counts nanoseconds as `time.perf_counter_ns` does; `device_clock` is what device marks are stamped by;
    `on_event` gets each written batch on the writer's thread. `failure` holds what stopped the writer.
    """

    def __init__(
        self,
        run: str = "run",
        *,
        timing: bool = True,
        clock: Callable[[], int] = time.perf_counter_ns,
        device_clock: Clock = Clock.HOST,
        ranges: Ranges | None = None,
        on_event: Callable[[Sequence[Event]], None] | None = None,
    ) -> None:
        self.run, self.timing, self.clock, self.device_clock = run, timing, clock, device_clock
        self.ranges, self.on_event = ranges if timing else None, on_event
        self.rows: deque[tuple[Any, ...]] = deque()
        self.epoch_ns, self.epoch_utc = clock(), datetime.now(UTC).isoformat()
        self.written = 0
        self.writer_ns = 0
        self.failure: BaseException | None = None
        self._file: TextIO | None = None
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._write_all, name="log writer", daemon=True)

    def scope(self, job: str, partition: int, gpu: int = -1, worker: int = -1, warmup: bool = False) -> Scope:
        """An identity to record under."""
        return Scope(self, job, partition, gpu, worker, warmup)

    def counter(self, name: str, value: float, gpu: int = -1) -> None:
        """One sample of a counter, now."""
        if self.timing:
            now = self.clock()
            scope = Scope(self, "", -1, gpu, -1, False)
            self.rows.append((scope, Phase.COUNTER, Lane.CPU, name, now, now, 0, Memory.NONE, -1, float(value)))

    def open(self, path: Path, header: Mapping[str, Any]) -> None:
        """Write the header and start the writer thread. Raises OSError."""
        self._file = growing(path)
        self._file.write(json.dumps({"header": {"run": self.run, "epoch_utc": self.epoch_utc, **header}}) + "\n")
        self._file.flush()
        self._thread.start()

    def close(self, trailer: Mapping[str, Any]) -> None:
        """Write what is left and the trailer with the cost of the hooks; raises what stopped the writer."""
        if self._file is None:
            return
        self._wake.set()
        self._thread.join()
        with self._file:
            if self.failure is not None:
                raise self.failure
            span_ns = span_cost_ns(self.clock) if self.timing else 0.0
            cost = {
                "events": self.written,
                "span_ns": round(span_ns),
                "cost_ns": round(self.written * span_ns) + self.writer_ns,
            }
            self._file.write(json.dumps({"trailer": {"hooks": cost, **trailer}}) + "\n")

    def _write_all(self) -> None:
        try:
            while not self._wake.wait(FLUSH_S):
                self._write()
            self._write()
        except BaseException as error:  # the run's main thread sees it and ends the run
            self.failure = error
        self.writer_ns = time.thread_time_ns()

    def _write(self) -> None:
        assert self._file is not None
        batch = [self._event(*self.rows.popleft()) for _ in range(len(self.rows))]
        if not batch:
            return
        self._file.write("".join(json.dumps(as_row(event)) + "\n" for event in batch))
        self._file.flush()
        self.written += len(batch)
        if self.on_event is not None:
            self.on_event(batch)

    def _event(
        self,
        scope: Scope,
        phase: Phase,
        lane: Lane,
        name: str,
        start: int | Mark,
        end: int | Mark,
        nbytes: int = 0,
        memory: Memory = Memory.NONE,
        stream: int = -1,
        value: float | None = None,
    ) -> Event:
        clock = Clock.HOST if stream < 0 else self.device_clock
        if not isinstance(start, int):
            start = start.time_ns()
        if not isinstance(end, int):
            end = end.time_ns()
        start, end = start - self.epoch_ns, end - self.epoch_ns
        identity = (self.run, scope.job, scope.partition, scope.gpu, scope.worker)
        return Event(*identity, phase, lane, name, start, end, value, nbytes, memory, stream, clock, scope.warmup)


def as_row(event: Event) -> dict[str, Any]:
    """The log line of a row: without `run`, which the header holds, and without values that equal the defaults."""
    defaults = Event._field_defaults
    return {k: v for k, v in zip(event._fields[1:], event[1:], strict=True) if k not in defaults or v != defaults[k]}


def span_cost_ns(clock: Callable[[], int] = time.perf_counter_ns, rounds: int = 5, spans: int = 1000) -> float:
    """What one span costs the thread that makes it: median over rounds, nanoseconds."""
    costs = []
    for _ in range(rounds):
        scope = Recorder(clock=clock).scope("cost", 0)
        start = time.perf_counter_ns()
        for _ in range(spans):
            with scope.span(Phase.PREP, "cost"):
                pass
        costs.append((time.perf_counter_ns() - start) / spans)
    return statistics.median(costs)
