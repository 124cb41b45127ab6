"""Logs written by hand, row by row: the answers stand in the comments of the tests that use them."""

from __future__ import annotations

from typing import Any

import pandas as pd

from cuzkbench.events import Event, Phase
from cuzkbench.logs.log import Log
from cuzkbench.logs.validate import LANES, complete_header, validate

MS = 1_000_000  # ns


def row(phase: str, start: int, end: int, partition: int = 0, worker: int = 0, **columns: Any) -> dict[str, Any]:
    """One row; start and end in the caller's unit, the lane as the phase wants it, SYNTHESIS and QUEUE without gpu."""
    early = phase in ("SYNTHESIS", "QUEUE")
    plain = {
        "run": "r",
        "job": "j",
        "partition": partition,
        "gpu": -1 if early else 0,
        "worker": -1 if early else worker,
        "phase": phase,
        "lane": LANES.get(Phase(phase), "CPU"),
        "name": phase.lower(),
        "start_ns": start,
        "end_ns": end,
        "memory": "PINNED" if phase in ("H2D", "D2H") else "NONE",
    }
    return Event._field_defaults | plain | columns


def header(**changes: Any) -> dict[str, Any]:
    """A whole header of a simulated run on one GPU whose pinned copies reach 1 GB/s (1 byte a ns) each way."""
    rate = {"H2D": {"idle": 1.0, "loaded": None}, "D2H": {"idle": 1.0, "loaded": None}}
    stated = {"format_version": 1, "run": "r", "device_kind": "simulated", "kernels": "real", "line_rate_gb_s": rate}
    return complete_header(stated | changes, "handmade")


def log(*rows: dict[str, Any], scale: int = 1, **changes: Any) -> Log:
    """A validated log of the rows, their times multiplied by scale."""
    frame = pd.DataFrame(list(rows))
    if scale != 1:
        frame[["start_ns", "end_ns"]] = frame[["start_ns", "end_ns"]] * scale
    whole = header(**changes)
    return Log(validate(frame, whole, "handmade"), whole, {"ended": "done"}, None, (), "handmade")
