"""The device clock on the host's time line: anchors, each an event bracketed by two host readings.

An event is placed by its distance to the anchor in force when it was recorded. CUDA gives that distance as float32
milliseconds (resolution 2^-24 of it), so anchors are renewed twice a second: 0.03 µs of rounding, 1 to 5 µs of drift
at the 2.5 to 9.5 parts in a million seen on H200s, and half a bracket (3 to 6 µs) of offset. Where every core is
busy a bracket can be wide: such an anchor is not taken before the one in force has aged as much. Renewals wait for the
driver, 15 s where it page-locked 39 GB; the bound therefore counts the ages at which events were placed.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

from cuzkbench.device.cuda_streams import Events

PERIOD_S = 0.5
RETRY_S = 0.1  # after a bracket that was too wide
TRIES = 32  # brackets of 6 to 12 µs for one anchor
DRIFT = 10e-6  # of the two clocks, a little more than was seen


@dataclass(frozen=True)
class Anchor:
    """An event, the host time of the middle of its bracket, half the bracket, and its place on the device's clock."""

    event: Any
    host_ns: int
    bound_ns: int
    device_ns: float  # since the first anchor, summed over neighbours so that no distance is long

    def error_ns(self, age_ns: float, drift: float = DRIFT) -> float:
        """How far a mapping through this anchor can be off so long after it."""
        return self.bound_ns + abs(drift) * age_ns

    def beats(self, older: Anchor) -> bool:
        """Whether mappings from now on are safer through this one."""
        return self.bound_ns <= older.error_ns(self.host_ns - older.host_ns)


class CudaClock:
    """Keeps anchors of one device; a background thread renews them."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._stream = device.cupy.cuda.Stream(non_blocking=True)
        self._stop = threading.Event()
        self._placing = threading.Lock()
        self._ages: dict[int, float] = {}  # of each anchor by its host time: the oldest event placed by it
        self._events = Events(device.cupy, block=False, count=4 * TRIES)
        self.anchor = self._take(None, tries=4 * TRIES)
        self.anchors = [self.anchor]
        self._thread = threading.Thread(target=self._renew, name="cuda-clock", daemon=True)
        self._thread.start()

    def host_ns(self, anchor: Anchor, event: Any) -> int:
        """Host time of an event recorded after (or just before) the anchor."""
        age_ns = self._elapsed_ns(anchor.event, event)
        with self._placing:
            self._ages[anchor.host_ns] = max(age_ns, self._ages.get(anchor.host_ns, 0.0))
        return anchor.host_ns + round(age_ns)

    def fit(self) -> dict[str, float | None]:
        """Offset of the last anchor, drift over all anchors, and how far the events placed so far can be off."""
        first, last = self.anchors[0], self.anchors[-1]
        span = last.host_ns - first.host_ns
        drift = (last.device_ns - span) / span if span > 5_000_000_000 else None
        with self._placing:
            ages = {last.host_ns: 0.0} | self._ages
        assumed = DRIFT if drift is None else drift
        used = [anchor for anchor in self.anchors if anchor.host_ns in ages]
        return {
            "offset_ns": last.host_ns - first.host_ns - round(last.device_ns),
            "drift_ppm": None if drift is None else drift * 1e6,
            "bound_ns": max(anchor.error_ns(ages[anchor.host_ns], assumed) for anchor in used),
        }

    def close(self) -> None:
        """Stop renewing."""
        self._stop.set()
        self._thread.join()

    def _renew(self) -> None:
        self._device.enter()
        wait_s = PERIOD_S
        while not self._stop.wait(wait_s):
            anchor = self._take(self.anchor)
            if anchor.beats(self.anchor):
                self.anchors.append(anchor)
                self.anchor, wait_s = anchor, PERIOD_S
            else:
                self._events.give(anchor.event)
                wait_s = RETRY_S

    def _take(self, before: Anchor | None, tries: int = TRIES) -> Anchor:
        """The tightest of some brackets: the event happened between the two host readings."""
        best: tuple[int, int, Any] | None = None
        for _ in range(tries):
            event = self._events.take()
            begin = time.perf_counter_ns()
            event.record(self._stream)
            while not event.done:
                pass
            end = time.perf_counter_ns()
            if best is not None and end - begin >= best[0]:
                self._events.give(event)
                continue
            if best is not None:
                self._events.give(best[2])
            best = (end - begin, begin, event)
        assert best is not None
        width, begin, event = best
        device_ns = 0.0 if before is None else before.device_ns + self._elapsed_ns(before.event, event)
        return Anchor(event, begin + width // 2, (width + 1) // 2, device_ns)

    def _elapsed_ns(self, start: Any, end: Any) -> float:
        return self._device.cupy.cuda.get_elapsed_time(start, end) * 1e6
