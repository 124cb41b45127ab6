"""Several logs side by side: one row for each GPU of each log, the policies beside the figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from cuzkbench.analysis.gaps import gaps
from cuzkbench.analysis.metrics import bandwidth, metrics
from cuzkbench.logs.log import Log

_PLAN = ("lock", "memory", "workers", "cpu_load", "kernels")


def compare(logs: Sequence[Log], line_rate: float | None = None) -> pd.DataFrame:
    """The columns of `metrics` after log, title, device and plan, then upload rate, largest cause, relative cadence.

    `relative_cadence` divides by the cadence of the first row; NaN where one of them is not known.
    """
    rows = []
    for log in logs:
        plan = log.header["plan"] or {}
        rates, idle = bandwidth(log, line_rate), gaps(log, line_rate)
        named: dict[str, Any] = {"log": log.path or log.title, "title": log.title, "device": log.device_name}
        named |= {name: plan.get(name) for name in _PLAN}
        for row in metrics(log, line_rate).to_dict("records"):
            up = rates[(rates["gpu"] == row["gpu"]) & (rates["direction"] == "H2D")]
            mine = idle[idle["gpu"] == row["gpu"]]
            causes = (mine["end_ns"] - mine["start_ns"]).groupby(mine["cause"].astype(str)).sum()
            more = {
                "h2d_gb_s": up["bytes"].sum() / up["duration_ns"].sum() if len(up) else float("nan"),
                "largest_cause": str(causes.idxmax()) if len(causes) else None,
            }
            rows.append(named | row | more)
    frame = pd.DataFrame(rows)
    return frame.assign(relative_cadence=frame["cadence_ns"] / frame["cadence_ns"].iloc[0]) if rows else frame
