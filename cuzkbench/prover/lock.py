"""The GPU lock: first come, first served, handed over directly, and recorded as LOCK_WAIT and LOCK_HOLD rows.

Python's plain lock lets the thread that releases it take it again at once, which starves the other worker.
"""

from __future__ import annotations

import threading
from collections import deque

from cuzkbench.events import Lane, Phase
from cuzkbench.timing import Scope


class Warmup:
    """Keeps measured partitions from any GPU lock until each of `partitions` warm-up ones has had one.

    Otherwise a measured one may overtake, and the warm-up's turn among twelve measured ones lengthens their mean
    cadence by a tenth.
    """

    def __init__(self, partitions: int) -> None:
        self._left = partitions
        self._done = threading.Event()
        self._mutex = threading.Lock()
        if not partitions:
            self._done.set()

    def wait(self, scope: Scope) -> None:
        """Block a measured partition until its time has come."""
        if not scope.warmup:
            self._done.wait()

    def count(self, scope: Scope) -> None:
        """A partition has its lock."""
        with self._mutex:
            self._left -= scope.warmup
            if self._left <= 0:
                self._done.set()

    def stop(self) -> None:
        """Nobody is held back any more: the run ends."""
        self._done.set()


class FifoLock:
    """Mutual exclusion in the order of asking. Holds never overlap: one ends before the next owner is woken."""

    def __init__(self, warmup: Warmup) -> None:
        self._warmup = warmup
        self._mutex = threading.Lock()
        self._held = False
        self._waiting: deque[threading.Lock] = deque()
        self._since_ns = 0

    def acquire(self, scope: Scope) -> None:
        """Block until this is the oldest asker and the lock is free; records the wait."""
        asked_ns = scope.recorder.clock()
        self._warmup.wait(scope)
        turn: threading.Lock | None = None
        with self._mutex:
            if self._held:
                turn = threading.Lock()
                turn.acquire()
                self._waiting.append(turn)
            self._held = True
        if turn is not None:
            turn.acquire()  # released by the owner before us, who leaves the lock held for us
        self._warmup.count(scope)
        self._since_ns = scope.recorder.clock()
        scope.add(Phase.LOCK_WAIT, Lane.LOCK, "wait", asked_ns, self._since_ns)

    def release(self, scope: Scope) -> None:
        """Hand the lock to the oldest asker; records the hold. To be called by the owner."""
        since_ns, now_ns = self._since_ns, scope.recorder.clock()
        with self._mutex:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._held = False
        scope.add(Phase.LOCK_HOLD, Lane.LOCK, "hold", since_ns, now_ns)
