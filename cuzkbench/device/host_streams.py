"""Streams, events and engines of the host device: queued work, done by three threads in stream order, as on a GPU."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue

from cuzkbench.events import DeviceError, Lane


class HostEvent:
    """A point in a stream. As on a GPU, it is stamped when the stream reaches it, not when an engine takes up what
    follows: a row between two events holds the wait for an engine that works for another stream.
    """

    def __init__(self) -> None:
        self.stamp: Future[int] = Future()

    @property
    def passed(self) -> bool:
        """Whether the stream has passed it."""
        return self.stamp.done()

    def synchronize(self) -> None:
        """Block until the stream has passed the event."""
        self.stamp.result()

    def time_ns(self) -> int:
        """When the stream passed it; waits for that."""
        return self.stamp.result()


GoOn = Callable[[int | None], None]  # lets the stream go on; with the end of an operation, which may close a row


class HostStream:
    """An ordered queue of work: each item begins when the one before it is done. One thread queues."""

    def __init__(self, number: int, engines: Engines) -> None:
        self.number = number
        self._engines = engines
        self._last: Future[int | None] = Future()
        self._last.set_result(None)
        self._error: DeviceError | None = None

    def record(self) -> HostEvent:
        """An event after everything queued so far; directly behind an operation it takes that one's end as stamp."""
        event = HostEvent()

        def reach(ended_ns: int | None, go_on: GoOn) -> None:
            event.stamp.set_result(ended_ns or time.perf_counter_ns())
            go_on(None)

        self._queue(reach)
        return event

    def wait(self, event: HostEvent) -> None:
        """Hold later work of this stream until the event has passed."""
        self._queue(lambda _, go_on: event.stamp.add_done_callback(lambda _: go_on(None)))

    def synchronize(self) -> None:
        """Block until all queued work is done; raises the DeviceError of the first operation that failed, once."""
        self._last.result()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def run(self, lane: Lane, call: str, shape: str, work: Callable[[], None]) -> None:
        """Queue an operation for the engine of a lane; after a failure, the stream's later ones are skipped."""

        def operate(go_on: GoOn) -> None:
            if self._error is None:
                try:
                    work()
                except Exception as error:  # the stream's owner gets it from `synchronize`
                    self._error = DeviceError(call, shape, f"{type(error).__name__}: {error}")
            go_on(time.perf_counter_ns())

        self._queue(lambda _, go_on: self._engines.put(lane, lambda: operate(go_on)))

    def _queue(self, item: Callable[[int | None, GoOn], None]) -> None:
        before, done = self._last, Future[int | None]()
        self._last = done
        before.add_done_callback(lambda ended: item(ended.result(), done.set_result))


class Engines:
    """One thread that computes and one that copies each way; `cpu_ns` is what each one's operations used so far."""

    def __init__(self, name: str) -> None:
        lanes = (Lane.COMPUTE, Lane.COPY_H2D, Lane.COPY_D2H)
        self._queues: dict[Lane, SimpleQueue[Callable[[], None] | None]] = {lane: SimpleQueue() for lane in lanes}
        self.cpu_ns = dict.fromkeys(lanes, 0)
        self._threads = [
            threading.Thread(target=self._work, args=(lane,), name=f"{name} {lane}", daemon=True) for lane in lanes
        ]
        for thread in self._threads:
            thread.start()

    def put(self, lane: Lane, operation: Callable[[], None]) -> None:
        """Have an operation done by a lane's thread."""
        self._queues[lane].put(operation)

    def close(self) -> None:
        """End the threads after what is queued."""
        for queue in self._queues.values():
            queue.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self, lane: Lane) -> None:
        while (operation := self._queues[lane].get()) is not None:
            start_ns = time.thread_time_ns()
            operation()
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
