"""The bounded queue between synthesis and the GPU workers, and how both learn that a run ends early."""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Stopped(Exception):
    """The run ends: whoever waits for a buffer or for room in the queue gives up."""


class Handoff(Generic[Item]):
    """First in, first out, at most `depth` items."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._changed = threading.Condition()
        self._items: deque[Item] = deque()
        self._ended = self._stopped = False

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: Item) -> None:
        """Wait for room; raises Stopped once the run ends early."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._items) < self._depth or self._stopped)
            if self._stopped:
                raise Stopped
            self._items.append(item)
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
