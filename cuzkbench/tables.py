"""Answers as text on a terminal: what `run`, `demo`, `compare`, `explain` and `whatif` print.

Names come from logs that anybody may have written: they are shown as plain text, without control characters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from cuzkbench.charts.palette import CAUSES, duration, rate
from cuzkbench.events import GapCause

if TYPE_CHECKING:
    import pandas as pd

    from cuzkbench.logs.log import Log

NONE = "–"


def show(*parts: RenderableType) -> None:
    """Print to stdout; off a terminal without colour and wide enough that no table is cut."""
    console = Console(soft_wrap=False)
    if not console.is_terminal:
        console = Console(width=160)
    for part in parts:
        console.print(plain(part) if isinstance(part, str) else part)


def plain(text: object) -> Text:
    """Text as it is, no markup read in it, control characters shown as spaces."""
    return Text("".join(c if c.isprintable() or c == "\n" else " " for c in str(text)))


def time(ns: float | None) -> str:
    """A duration in the unit that reads best."""
    return NONE if ns is None else duration(ns)


def percent(share: float | None) -> str:
    """A share of 1 as per cent."""
    return NONE if share is None else f"{share:.1%}"


def comparison(logs: Sequence[Log], names: Sequence[str] = ()) -> list[RenderableType]:
    """Logs side by side: a column for each GPU of each log, a row for each figure, then what to know of them."""
    from cuzkbench.analysis import bandwidth, metrics, partitions

    columns: list[tuple[str, dict[str, str]]] = []
    titles = [log.title for log in logs]
    if len(set(titles)) < len(titles):
        titles = [Path(log.path).name if log.path else log.title for log in logs]
    for log, title in zip(logs, names or titles, strict=True):
        measured = _records(metrics(log))
        rates = _records(bandwidth(log))
        done = partitions(log)
        kernels = done[~done["warmup"]].groupby("gpu")["kernel_ns"].median()
        for gpu in measured:
            name = title if len(measured) == 1 else f"{title}, GPU {gpu['gpu']}"
            gpu["kernel_ns"] = kernels.get(gpu["gpu"])
            columns.append((name, _figures(log, gpu, [copies for copies in rates if copies["gpu"] == gpu["gpu"]])))
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("")
    for name, _ in columns:
        table.add_column(plain(name), justify="right")
    for figure in dict.fromkeys(figure for _, figures in columns for figure in figures):
        table.add_row(figure, *(plain(figures.get(figure, NONE)) for _, figures in columns))
    labels = dict.fromkeys(text for log in logs for text in (*log.labels, *log.warnings))
    return [table, *(plain(f"note: {label}") for label in labels)]


def _records(frame: pd.DataFrame) -> list[dict[Any, Any]]:
    """Rows as mappings, None where the frame knows nothing."""
    return frame.astype(object).where(frame.notna(), None).to_dict("records")


def _figures(log: Log, gpu: Mapping[Any, Any], rates: Sequence[Mapping[Any, Any]]) -> dict[str, str]:
    """The rows of one column of `comparison`."""
    figures = {
        "device": log.device_name,
        "kernel utilisation": percent(gpu["kernel_utilisation"]),
        "lock utilisation": percent(gpu["lock_utilisation"]),
        "worker utilisation": percent(gpu["worker_utilisation"]),
        "transfer hidden behind kernels": percent(gpu["hidden_transfer"]),
        "cadence": time(gpu["cadence_ns"]),
        "kernels of a partition": time(gpu["kernel_ns"]),
        "ideal cadence": time(gpu["ideal_cadence_ns"]),
        "efficiency": percent(gpu["efficiency"]),
        "measured partitions": str(gpu["partitions"]),
    }
    for copies in rates:
        figures[f"{copies['direction']} {copies['memory'].lower()}"] = rate(copies["gb_s"])
    proofs = (log.trailer or {}).get("proofs")
    if proofs:
        figures["proofs verified"] = f"{proofs['verified']} of {proofs['made']}"
    return figures


def explanation(answer: Mapping[str, Any]) -> list[RenderableType]:
    """The document of `explain --json` in words, then in tables."""
    parts: list[RenderableType] = [plain(line) for line in verdict(answer)]
    for gpu in answer["gpus"]:
        causes = Table(
            "idle", "share", "what the GPU waited for", title=f"GPU {gpu['gpu']}: {time(gpu['idle_ns'])} idle"
        )
        for cause, ns in sorted(gpu["causes"].items(), key=lambda item: (-item[1], item[0])):
            causes.add_row(
                time(ns), percent(ns / gpu["idle_ns"] if gpu["idle_ns"] else None), cause, GapCause[cause].meaning
            )
        parts.append(causes)
    theories = Table("theory", "verdict", "idle explained", "cadence if mended", "why", title="Theories")
    for theory in answer["theories"]:
        theories.add_row(
            theory["name"],
            theory["verdict"],
            time(theory["explained_idle_ns"]),
            time(theory["predicted_cadence_ns"]),
            plain(theory["why"]),
        )
    parts.append(theories)
    if len(answer["jobs"]) > 1:
        jobs = Table("job", "partitions", "wall time", "proofs an hour", title="Jobs")
        for job in answer["jobs"]:
            row = (plain(job["job"]), str(job["partitions"]), time(job["wall_ns"]), f"{job['proofs_per_hour']:.1f}")
            jobs.add_row(*row)
        parts.append(jobs)
    return parts


def verdict(answer: Mapping[str, Any]) -> list[str]:
    """The short plain answer: how idle, what for, which theory holds, which do not, and the one change."""
    lines = [f"{answer['log']} ({answer['format']}, {answer['device']['name']})"]
    for gpu in answer["gpus"]:
        if not gpu["window_ns"]:
            lines.append(f"GPU {gpu['gpu']}: no kernel in this log, so nothing can be said of its idle time.")
            continue
        line = f"GPU {gpu['gpu']} computed {percent(gpu['kernel_utilisation'])} of {time(gpu['window_ns'])}"
        top = max(gpu["causes"].items(), key=lambda item: item[1], default=None)
        if top and top[1]:
            share, words = percent(top[1] / gpu["idle_ns"]), CAUSES[GapCause[top[0]]].words
            line += f" and was idle for {time(gpu['idle_ns'])}, {share} of that waiting for {words}"
        lines.append(line + ".")
    if not answer["gpus"]:
        lines.append("There is no GPU activity in this log.")
    for theory in answer["theories"]:
        if theory["verdict"] == "supported":
            lines.append(f"Supported: {theory['name']}. {theory['why']}")
    rejected = [theory["name"] for theory in answer["theories"] if theory["verdict"] == "rejected"]
    if rejected:
        lines.append(f"Rejected: {', '.join(rejected)}.")
    change = answer["best_change"]
    if change:
        predicted = time(change["predicted_cadence_ns"])
        lines.append(
            f"The one change that gains most: {change['change']}: cadence {predicted}, {percent(change['gain'])} less."
        )
    if answer["cut_at"]:
        lines.append(f"The log was cut: {answer['cut_at']}.")
    return lines + [f"note: {warning}" for warning in answer["warnings"]]


def prediction(answer: Mapping[str, Any]) -> list[RenderableType]:
    """The document of `whatif --json` in words."""
    changes = ", ".join(f"{name} {value}" for name, value in answer["changes"].items())
    parts: list[RenderableType] = [plain(f"With {changes}: {answer['why']}")]
    if answer["predicted"] is None:
        return parts
    table = Table("", "measured", "low", "middle", "high")
    predicted = answer["predicted"]
    measured = time(answer["measured_cadence_ns"])
    table.add_row("cadence", measured, *(time(ns) for ns in predicted["cadence_ns"]))
    table.add_row("kernel utilisation", "", *(percent(share) for share in predicted["kernel_utilisation"]))
    table.add_row("prove_start", "", *(time(ms * 1e6) for ms in predicted["prove_start_ms"]))
    return [*parts, table]
