"""Streams, events and engines of the host device: queued work, done by three threads in stream order, as on a GPU."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue

from cuzkbench.events import DeviceError, Lane


class HostEvent:
    """A point in a stream. As on a GPU, it is stamped when the stream reaches it, not when an engine takes up what
    follows: a row between two events holds the wait for an engine that works for another stream.
    """

    def __init__(self, stream: HostStream) -> None:
        self._stream = stream
        self.passed = False
        self.stamp_ns = 0

    def synchronize(self) -> None:
        """Block until the stream has passed the event."""
        self._stream.wait_for(lambda: self.passed)

    def time_ns(self) -> int:
        """When the stream passed it."""
        self.synchronize()
        return self.stamp_ns


@dataclass(frozen=True)
class _Operation:
    lane: Lane
    call: str
    shape: str
    run: Callable[[], None]


@dataclass(frozen=True)
class _Wait:
    event: HostEvent


class HostStream:
    """An ordered queue of work. All streams of a device share one condition, which guards their queues."""

    def __init__(self, number: int, engines: dict[Lane, Engine], changed: threading.Condition) -> None:
        self.number = number
        self._engines, self._changed = engines, changed
        self._pending: deque[_Operation | _Wait | HostEvent] = deque()
        self._busy = False
        self._closes = False  # the next event stands directly behind an operation and takes its end as stamp
        self._ended_ns = 0
        self._error: DeviceError | None = None
        self._followers: list[HostStream] = []  # streams that wait for an event of this one

    def record(self) -> HostEvent:
        """An event after everything queued so far."""
        event = HostEvent(self)
        self._queue(event)
        return event

    def wait(self, event: HostEvent) -> None:
        """Hold later work of this stream until the event has passed."""
        self._queue(_Wait(event))

    def synchronize(self) -> None:
        """Block until all queued work is done; raises the DeviceError of the first operation that failed, once."""
        self.wait_for(lambda: not self._pending and not self._busy)
        error, self._error = self._error, None
        if error is not None:
            raise error

    def run(self, lane: Lane, call: str, shape: str, work: Callable[[], None]) -> None:
        """Queue an operation for the engine of a lane."""
        self._queue(_Operation(lane, call, shape, work))

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Block until a condition on this device's streams holds."""
        with self._changed:
            self._changed.wait_for(condition)

    def work(self, operation: _Operation) -> None:
        """Do the operation, called by its engine; after a failure, the stream's later ones are skipped."""
        if self._error is None:
            try:
                operation.run()
            except Exception as error:  # the stream's owner gets it from `synchronize`
                self._error = DeviceError(operation.call, operation.shape, f"{type(error).__name__}: {error}")
        with self._changed:
            self._busy, self._closes, self._ended_ns = False, True, time.perf_counter_ns()
            self._advance(self._ended_ns)

    def _queue(self, item: _Operation | _Wait | HostEvent) -> None:
        with self._changed:
            self._pending.append(item)
            self._advance(time.perf_counter_ns())

    def _advance(self, now_ns: int) -> None:
        while self._pending and not self._busy:
            item = self._pending[0]
            if isinstance(item, _Wait):
                if not item.event.passed:
                    item.event._stream._followers.append(self)
                    break
                self._closes = False
            elif isinstance(item, HostEvent):
                item.passed, item.stamp_ns = True, self._ended_ns if self._closes else now_ns
                self._closes = False
            else:
                self._busy = True
                self._engines[item.lane].put((self, item))
            self._pending.popleft()
        followers, self._followers = self._followers, []
        for stream in followers:
            stream._advance(now_ns)
        self._changed.notify_all()


Engine = SimpleQueue["tuple[HostStream, _Operation] | None"]


class Engines:
    """One thread that computes and one that copies each way; `cpu_ns` is what each one's operations used so far."""

    def __init__(self, name: str) -> None:
        self._queues: dict[Lane, Engine] = {
            lane: SimpleQueue() for lane in (Lane.COMPUTE, Lane.COPY_H2D, Lane.COPY_D2H)
        }
        self.cpu_ns = dict.fromkeys(self._queues, 0)
        self._changed = threading.Condition()
        self._streams = 0
        self._threads = [
            threading.Thread(target=self._work, args=(lane,), name=f"{name} {lane}", daemon=True)
            for lane in self._queues
        ]
        for thread in self._threads:
            thread.start()

    def stream(self) -> HostStream:
        """A new stream of these engines."""
        self._streams += 1
        return HostStream(self._streams - 1, self._queues, self._changed)

    def close(self) -> None:
        """End the threads after what is queued."""
        for queue in self._queues.values():
            queue.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self, lane: Lane) -> None:
        while (item := self._queues[lane].get()) is not None:
            stream, operation = item
            start_ns = time.thread_time_ns()
            stream.work(operation)
            self.cpu_ns[lane] += time.thread_time_ns() - start_ns


class HostSequence:
    """Steps queued one by one, with an event of the stream before, between and after them."""

    def __init__(self, stream: HostStream, steps: list[Callable[[HostStream], None]], timed: bool) -> None:
        self._stream, self._steps, self._timed = stream, steps, timed
        self._events: list[HostEvent] = []

    def prepare(self) -> None:
        """Nothing has to be made before the first launch."""

    def launch(self) -> None:
        """Queue all steps."""
        self._events = [self._stream.record()] if self._timed else []
        for step in self._steps:
            step(self._stream)
            if self._timed:
                self._events.append(self._stream.record())

    def times_ns(self) -> list[int]:
        """Instants around the steps of the last launch; empty if untimed."""
        return [event.time_ns() for event in self._events]
