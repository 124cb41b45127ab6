"""Threads that copy memory beside a run, as synthesis of other proofs does on a production machine."""

from __future__ import annotations

import threading

import numpy as np

BUFFER_BYTES = 64 << 20  # past every cache


class CpuLoad:
    """`threads` threads that copy until `stop`; NumPy releases the interpreter while it copies."""

    def __init__(self, threads: int) -> None:
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._copy, name=f"load {index}", daemon=True) for index in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def _copy(self) -> None:
        source, target = np.ones(BUFFER_BYTES, np.uint8), np.empty(BUFFER_BYTES, np.uint8)
        while not self._stopping.is_set():
            np.copyto(target, source)

    def stop(self) -> None:
        """End the threads; more than once is fine."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()
