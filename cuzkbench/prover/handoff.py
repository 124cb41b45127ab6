"""The bounded queue between synthesis and the GPU workers, and how both learn that a run ends early."""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Stopped(Exception):
    """The run ends: whoever waits for a buffer or for room in the queue gives up."""


class Handoff(Generic[Item]):
    """First in, first out, at most `depth` items; `first` of them are put before any other."""

    def __init__(self, depth: int, first: int = 0) -> None:
        self._depth, self._first = depth, first
        self._changed = threading.Condition()
        self._items: deque[Item] = deque()
        self._ended = self._stopped = False

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: Item, first: bool = False) -> None:
        """Wait for room and for the first ones; raises Stopped once the run ends early."""
        with self._changed:
            self._changed.wait_for(
                lambda: (len(self._items) < self._depth and (first or not self._first)) or self._stopped
            )
            if self._stopped:
                raise Stopped
            self._items.append(item)
            self._first -= first
            self._changed.notify_all()

    def get(self) -> Item | None:
        """The oldest item; None after the last one, or once the run ends early."""
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._ended or self._stopped)
            if self._stopped or not self._items:
                return None
            item = self._items.popleft()
            self._changed.notify_all()
            return item

    def end(self, early: bool = False) -> None:
        """No more items come; early: those that wait are not wanted either."""
        with self._changed:
            self._ended, self._stopped = True, self._stopped or early
            self._changed.notify_all()
