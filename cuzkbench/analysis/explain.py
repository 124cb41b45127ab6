"""The whole answer about one log as one document, and the figures of several side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from cuzkbench.analysis.gaps import gaps, idle_by_cause
from cuzkbench.analysis.metrics import all_operations, bandwidth, jobs, metrics, partitions
from cuzkbench.analysis.rows import limits
from cuzkbench.analysis.stretches import course, stretches
from cuzkbench.analysis.theories import theories
from cuzkbench.analysis.whatif import best_change
from cuzkbench.logs.foreign import NO_GPU
from cuzkbench.logs.log import Log

_PLAN = ("lock", "memory", "workers", "cpu_load", "kernels")


def explain(
    log: Log, line_rate: float | None = None, start_ns: int | None = None, end_ns: int | None = None
) -> dict[str, Any]:
    """The document of `explain --json`, plain Python values only; `line_rate` in GB/s.

    start_ns and end_ns narrow it to a part; `all_operations` is always of the whole log. Raises ValueError for an
    empty part or a line rate that is not above 0.
    """
    low, high = limits(start_ns, end_ns)
    if low >= high:
        raise ValueError(f"part from {low / 1e9:g} to {high / 1e9:g} s: it must end after it starts")
    part = {"start_ns": start_ns, "end_ns": end_ns}
    measured, whole = metrics(log, line_rate, **part), all_operations(log)
    rates, idle = bandwidth(log, line_rate, **part), gaps(log, line_rate, **part)
    done = _measured(partitions(log), low, high)
    frames = rates, idle, whole, stretches(log, **part), done
    gpus = [
        row | _details(*(frame[frame["gpu"] == row["gpu"]] for frame in frames))
        for row in _records(measured.drop(columns=["window_start_ns", "window_end_ns"]))
    ]
    return {
        "log": log.path or log.title,
        "format": log.format,
        "device": {"kind": log.kind, "name": log.device_name},
        "complete": log.complete,
        "cut_at": log.cut_at,
        "labels": list(log.labels),
        "warnings": _warnings(log, measured, rates, whole) + overtaken(log, **part),
        "proofs": (log.trailer or {}).get("proofs"),
        "gpus": gpus,
        "theories": _records(theories(log, line_rate, **part)),
        "jobs": _records(jobs(log, **part)),
        "best_change": best_change(log, line_rate, **part),
    }


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
    proved = done["prove_start_ns"].dropna().astype("float64") / 1e6
    spread = {name: float(getattr(proved, name)()) for name in ("min", "median", "max")}
    operations = dict.fromkeys(whole.columns, 0) | (_records(whole)[0] if len(whole) else {})
    return {
        "prove_start_ms": spread if len(proved) else None,
        "bandwidth_gb_s": by_way,
        "line_rate_gb_s": line,
        "causes": idle_by_cause(idle),
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


def _measured(proved: pd.DataFrame, low: int, high: int) -> pd.DataFrame:
    return proved[~proved["warmup"] & proved["completion_ns"].between(low, high).fillna(False)]


def overtaken(log: Log, start_ns: int | None = None, end_ns: int | None = None) -> list[str]:
    """Where warm-up partitions were proved among the measured ones: their turns are part of the cadence."""
    found, proved = [], partitions(log)
    for gpu, measured in _measured(proved, *limits(start_ns, end_ns)).groupby("gpu", observed=True)["completion_ns"]:
        warm = proved[proved["warmup"] & (proved["gpu"] == gpu)]["completion_ns"]
        turns = int(((warm > measured.min()) & (warm < measured.max())).fillna(False).sum())
        if turns:
            longer = turns / (len(measured) - 1)
            found.append(
                f"GPU {gpu}: warm-up was proved among the measured partitions, {turns} of {turns + len(measured)}: "
                f"cadence holds its turns and reads about {longer:.0%} long."
            )
    return found


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
            reached = up["bytes"].sum() / up["duration_ns"].sum() if len(up) else float("nan")
            largest = next(iter(idle_by_cause(idle[idle["gpu"] == row["gpu"]])), None)
            rows.append(named | row | {"h2d_gb_s": reached, "largest_cause": largest})
    frame = pd.DataFrame(rows)
    return frame.assign(relative_cadence=frame["cadence_ns"] / frame["cadence_ns"].iloc[0]) if rows else frame
