"""The line rate: what a pinned copy reaches on this machine, and how we know."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cuzkbench.analysis.rows import KIND, Rows
from cuzkbench.events import Memory, Phase
from cuzkbench.logs.log import Log
from cuzkbench.logs.validate import GB_S

ASSUMED_GB_S = 50.0  # PCIe Gen5 x16 in practice
TELLING_BYTES = 1 << 20  # smaller copies are latency, not bandwidth


class LineRate(NamedTuple):
    """Bytes a nanosecond, which is GB/s, and its source: argument, header, fastest pinned copy, assumed."""

    gb_s: float
    source: str

    def ns(self, size_bytes: Any) -> np.ndarray:
        """Nanoseconds that so many bytes take at this rate, int64."""
        return np.rint(np.asarray(size_bytes, np.float64) / self.gb_s).astype(np.int64)


def line_rate(log: Log, rows: Rows, direction: Phase, argument: float | None = None) -> LineRate:
    """The line rate of one GPU (whose rows these are) in one direction.

    The header's figure under the run's own load, where it was measured; else the idle one. A log without takes its
    own fastest pinned copy of a mebibyte or more, else ASSUMED_GB_S, which its source admits.
    """
    if argument is not None:
        if not GB_S[0] <= argument <= GB_S[1]:
            raise ValueError(f"line rate {argument}: from {GB_S[0]:g} to {GB_S[1]:g} GB/s")
        return LineRate(float(argument), "argument")
    stated = (log.header["line_rate_gb_s"] or {}).get(str(direction))
    if isinstance(stated, dict):
        loaded = bool((log.header["plan"] or {}).get("cpu_load"))
        for key in ("loaded", "idle") if loaded else ("idle", "loaded"):
            if stated.get(key) is not None:
                return LineRate(float(stated[key]), "header")
    copies = rows.of(direction)
    duration = copies.end - copies.start
    telling = (copies.memory == KIND[Memory.PINNED]) & (copies.bytes >= TELLING_BYTES) & (duration > 0)
    if telling.any():
        return LineRate(float((copies.bytes[telling] / duration[telling]).max()), "fastest pinned copy")
    return LineRate(ASSUMED_GB_S, "assumed")
