"""The whole answer about one log as one document: what `explain --json` prints and the report and terminal show."""

from __future__ import annotations

from typing import Any

import pandas as pd

from cuzkbench.analysis.gaps import gaps
from cuzkbench.analysis.metrics import all_operations, bandwidth, jobs, metrics, partitions
from cuzkbench.analysis.stretches import course, stretches
from cuzkbench.analysis.theories import theories
from cuzkbench.analysis.whatif import best_change
from cuzkbench.logs.foreign import NO_GPU
from cuzkbench.logs.log import Log
from cuzkbench.logs.validate import LATEST_NS

_GPU = [
    "window_ns", "kernel_busy_ns", "kernel_utilisation", "idle_ns", "idle_gaps", "lock_utilisation",
    "worker_utilisation", "hidden_transfer", "interleaving", "partitions", "cadence_ns", "median_cadence_ns",
    "cadence_q1_ns", "cadence_q3_ns", "ideal_cadence_ns", "efficiency",
]  # fmt: skip


def explain(
    log: Log, line_rate: float | None = None, start_ns: int | None = None, end_ns: int | None = None
) -> dict[str, Any]:
    """The document of `explain --json`, plain Python values only; `line_rate` in GB/s.

    start_ns and end_ns narrow it to a part; `all_operations` is always of the whole log. Raises ValueError for an
    empty part or a line rate that is not above 0.
    """
    low, high = (-LATEST_NS if start_ns is None else start_ns), (LATEST_NS if end_ns is None else end_ns)
    if low >= high:
        raise ValueError(f"part from {low / 1e9:g} to {high / 1e9:g} s: it must end after it starts")
    part = {"start_ns": start_ns, "end_ns": end_ns}
    measured, rates = metrics(log, line_rate, **part), bandwidth(log, line_rate, **part)
    idle, whole, changes = gaps(log, line_rate, **part), all_operations(log), stretches(log, **part)
    done = partitions(log)
    done = done[
        ~done["warmup"] & done["prove_start_ns"].notna() & done["completion_ns"].between(low, high).fillna(False)
    ]
    documents = []
    for row in measured.to_dict("records"):
        own = [_of(frame, row["gpu"]) for frame in (rates, idle, whole, changes, done)]
        documents.append({"gpu": row["gpu"], **{name: _plain(row[name], name) for name in _GPU}, **_details(*own)})
    return {
        "log": log.path or log.title,
        "format": log.format,
        "device": {"kind": log.kind, "name": log.device_name},
        "complete": log.complete,
        "cut_at": log.cut_at,
        "labels": list(log.labels),
        "warnings": _warnings(log, measured, rates, whole),
        "proofs": (log.trailer or {}).get("proofs"),
        "gpus": documents,
        "theories": _records(theories(log, line_rate, **part)),
        "jobs": _records(jobs(log, **part)),
        "best_change": best_change(log, line_rate, **part),
    }


def _of(frame: pd.DataFrame, gpu: int) -> pd.DataFrame:
    return frame[frame["gpu"] == gpu]


def _plain(value: Any, name: str) -> Any:
    """A cell as JSON knows it; times and counts are whole numbers, what is not known is null."""
    if isinstance(value, list | dict | str):
        return value
    if value is None or pd.isna(value):
        return None
    whole = name.endswith("_ns") or name in ("gpu", "partitions", "idle_gaps", "kernels", "copies", "memsets")
    return int(value) if whole else float(value)


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): _plain(value, str(name)) for name, value in row.items()} for row in frame.to_dict("records")]


def _details(
    rates: pd.DataFrame, idle: pd.DataFrame, whole: pd.DataFrame, changes: pd.DataFrame, done: pd.DataFrame
) -> dict[str, Any]:
    """What is not one number of one GPU."""
    by_way: dict[str, dict[str, float]] = {"H2D": {}, "D2H": {}}
    line: dict[str, dict[str, Any]] = {}
    for rate in rates.to_dict("records"):
        by_way[rate["direction"]][rate["memory"]] = float(rate["gb_s"])
        line[rate["direction"]] = {"gb_s": float(rate["line_rate_gb_s"]), "source": rate["line_rate_source"]}
    length = (idle["end_ns"] - idle["start_ns"]).groupby(idle["cause"].astype(str)).sum()
    proved = done["prove_start_ns"].astype("float64") / 1e6
    spread = {name: float(getattr(proved, name)()) for name in ("min", "median", "max")}
    operations = dict.fromkeys(whole.columns, 0) | (_records(whole)[0] if len(whole) else {})
    return {
        "prove_start_ms": spread if len(proved) else None,
        "bandwidth_gb_s": by_way,
        "line_rate_gb_s": line,
        "causes": {str(cause): int(ns) for cause, ns in length.sort_values(ascending=False, kind="stable").items()},
        "all_operations": {name: int(value) for name, value in operations.items() if name != "gpu"},
        "course": course(changes),
        "stretches": _records(changes.drop(columns="gpu")),
    }


def _warnings(log: Log, measured: pd.DataFrame, rates: pd.DataFrame, whole: pd.DataFrame) -> list[str]:
    found = list(log.warnings)
    if len(whole) == 0 and NO_GPU not in found:
        found.append(NO_GPU)
    for row in measured.itertuples():
        if row.window_ns == 0 and len(whole):
            found.append(f"GPU {row.gpu}: no kernel in what was looked at, so no utilisation and no idle time.")
    assumed = rates[rates["line_rate_source"] == "assumed"]
    if len(assumed):
        ways = " and ".join(dict.fromkeys(assumed["direction"]))
        why = f"the log holds no pinned {ways} copy of a mebibyte or more."
        found.append(f"The line rate of {assumed['line_rate_gb_s'].max():g} GB/s is assumed: {why}")
    return found
