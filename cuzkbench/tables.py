"""Answers as text on a terminal: what `run`, `demo`, `compare`, `explain` and `whatif` print.

Names come from logs that anybody may have written: they are shown as plain text, without control characters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from cuzkbench.events import GapCause
from cuzkbench.words import CAUSES, NONE, duration, rate

if TYPE_CHECKING:
    from cuzkbench.logs.log import Log

FILE_WIDTH = 160  # columns where the output is no terminal
WHOLE = ("theory", "cause")  # columns of names to be typed or looked up: on a narrow terminal others give way


def show(*parts: RenderableType) -> None:
    """Print to stdout; off a terminal without colour and wide enough that tables read well."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=FILE_WIDTH)
    for part in parts:
        console.print(plain(part) if isinstance(part, str) else part)


def plain(text: object) -> Text:
    """Text as it is, no markup read in it, control characters shown as spaces."""
    return Text("".join(c if c.isprintable() or c == "\n" else " " for c in str(text)))


def percent(share: float | None) -> str:
    """A share of 1 as per cent."""
    return NONE if share is None or share != share else f"{share:.1%}"


def _table(title: str, *columns: str) -> Table:
    heading = plain(title) if title else None
    named = any(columns)
    table = Table(title=heading, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, show_header=named)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in WHOLE)
    return table


def comparison(logs: Sequence[Log], names: Sequence[str] = ()) -> list[RenderableType]:
    """Logs side by side: a column for each GPU of each log, a row for each figure, then what to know of them."""
    from cuzkbench.analysis import bandwidth, metrics, partitions
    from cuzkbench.logs.log import told_apart

    columns: list[tuple[str, dict[str, str]]] = []
    notes: dict[str, list[str]] = {}
    for log, title in zip(logs, names or told_apart(logs), strict=True):
        for text in dict.fromkeys((*log.labels, *log.warnings)):
            notes.setdefault(text, []).append(title)
        measured, copies, done = metrics(log), bandwidth(log), partitions(log)
        kernels = done[~done["warmup"]].groupby("gpu")["kernel_ns"].median()
        device = {"device": log.device_name}
        if measured.empty:  # a column that says nothing of a GPU, rather than none
            columns.append((title, device))
        for gpu in measured.to_dict("records"):
            rates: dict[str, dict[str, float]] = {"H2D": {}, "D2H": {}}
            for copy in copies[copies["gpu"] == gpu["gpu"]].to_dict("records"):
                rates[copy["direction"]][copy["memory"]] = copy["gb_s"]
            name = title if len(measured) == 1 else f"{title}, GPU {gpu['gpu']}"
            figures = device | {"kernels of a partition": duration(kernels.get(gpu["gpu"]))}
            columns.append((name, figures | _figures(gpu, rates) | _proofs((log.trailer or {}).get("proofs"))))
    table = _table("", "figure")
    for name, _ in columns:
        table.add_column(plain(name), justify="right")
    last = ("proofs", "download", "upload")  # from the end: of them one log has rows that another has not
    order = dict.fromkeys(figure for _, figures in columns for figure in figures)
    for figure in sorted(order, key=lambda figure: [figure.startswith(word) for word in last]):
        table.add_row(figure, *(plain(figures.get(figure, NONE)) for _, figures in columns))
    whose = {text: "" if len(of) == len(logs) else f"{', '.join(of)}: " for text, of in notes.items()}
    return [table, *(plain(f"note: {of}{text}") for text, of in whose.items())]


def _figures(gpu: Mapping[Any, Any], rates: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
    """The figures of one GPU in words."""
    shares = ("kernel_utilisation", "lock_utilisation", "worker_utilisation", "hidden_transfer")
    figures = {
        **{name.replace("_", " "): percent(gpu[name]) for name in shares},
        "cadence": duration(gpu["cadence_ns"]),
        "ideal cadence": duration(gpu["ideal_cadence_ns"]),
        "efficiency": percent(gpu["efficiency"]),
        "measured partitions": str(gpu["partitions"]),
    }
    for words, way in (("upload", "H2D"), ("download", "D2H")):
        figures |= {f"{words}, {memory.lower()}": rate(gb_s) for memory, gb_s in rates.get(way, {}).items()}
    return figures


def _proofs(proofs: Mapping[str, int] | None) -> dict[str, str]:
    return {"proofs verified": f"{proofs['verified']} of {proofs['made']}"} if proofs else {}


def explanation(answer: Mapping[str, Any]) -> list[RenderableType]:
    """The document of `explain --json` in words, then in tables."""
    parts: list[RenderableType] = [plain(line) for line in verdict(answer)]
    for gpu in answer["gpus"]:
        figures = _figures(gpu, gpu["bandwidth_gb_s"]) | _proofs(answer["proofs"])
        if gpu["prove_start_ms"]:
            figures["prove_start, median"] = duration(gpu["prove_start_ms"]["median"] * 1e6)
        table = _table(f"GPU {gpu['gpu']}", "", "")
        for name, value in figures.items():
            table.add_row(name, value)
        causes = _table(f"GPU {gpu['gpu']}: {duration(gpu['idle_ns'])} idle", "idle", "share", "cause", "meaning")
        for cause, ns in gpu["causes"].items():
            causes.add_row(duration(ns), percent(ns / gpu["idle_ns"]), cause, GapCause[cause].meaning)
        parts += [table, causes] if gpu["causes"] else [table]
    said = {(theory["verdict"], theory["why"]) for theory in answer["theories"]}
    if answer["gpus"] and len(said) == 1:  # one sentence instead of a table that repeats it
        parts.append(plain("Theories: {}, since {}.".format(*said.pop())))
    elif answer["gpus"]:
        theories = _table("Theories", "theory", "verdict", "idle explained", "cadence if mended", "why")
        for theory in answer["theories"]:
            figures = {name: duration(theory[name]) for name in ("explained_idle_ns", "predicted_cadence_ns")}
            theories.add_row(theory["name"], theory["verdict"], *figures.values(), plain(theory["why"]))
        parts.append(theories)
    if len(answer["jobs"]) > 1:
        jobs = _table("Jobs", "job", "partitions", "wall time", "proofs an hour")
        for job in answer["jobs"]:
            hourly = NONE if job["proofs_per_hour"] is None else f"{job['proofs_per_hour']:.1f}"
            jobs.add_row(plain(job["job"]), str(job["partitions"]), duration(job["wall_ns"]), hourly)
        parts.append(jobs)
    return parts


def verdict(answer: Mapping[str, Any]) -> list[str]:
    """The short plain answer: how idle, what for, which theory holds, which do not, and the one change."""
    lines = [f"{answer['log']}: {answer['format']} log of {answer['device']['name']}"]
    for gpu in answer["gpus"]:
        if not gpu["window_ns"]:
            continue  # a warning says so
        line = f"GPU {gpu['gpu']} computed {percent(gpu['kernel_utilisation'])} of {duration(gpu['window_ns'])}"
        if gpu["idle_ns"]:
            cause, most = next(iter(gpu["causes"].items()))
            share, words = percent(most / gpu["idle_ns"]), CAUSES[GapCause[cause]]
            line += f" and was idle for {duration(gpu['idle_ns'])}, {share} of that waiting for {words}"
        lines.append(line + (f". In time: {gpu['course']}." if gpu["course"] else "."))
    for theory in answer["theories"] if answer["gpus"] else ():
        if theory["verdict"] == "supported":
            lines.append(f"Supported: {theory['name']} ({theory['why']}).")
    rejected = [theory["name"] for theory in answer["theories"] if theory["verdict"] == "rejected"]
    if rejected:
        lines.append(f"Rejected: {', '.join(rejected)}.")
    change = answer["best_change"]
    if change:
        predicted = duration(change["predicted_cadence_ns"])
        lines.append(
            f"The one change that gains most: {change['change']}; cadence {predicted}, {percent(change['gain'])} less."
        )
    if answer["cut_at"]:
        lines.append(f"The log was cut: {answer['cut_at']}.")
    return lines + [f"note: {text}" for text in dict.fromkeys((*answer["labels"], *answer["warnings"]))]


def prediction(answer: Mapping[str, Any], notes: Sequence[str] = ()) -> list[RenderableType]:
    """The document of `whatif --json` in words, then what to know of its log."""
    told = [plain(f"note: {text}") for text in dict.fromkeys(notes)]
    changes = ", ".join(f"{name} {value}" for name, value in answer["changes"].items())
    parts: list[RenderableType] = [plain(f"With {changes}: {answer['why']}")]
    if answer["predicted"] is None:
        return [*parts, *told]
    table = _table("", "", "measured", "low", "middle", "high")
    predicted = answer["predicted"]
    table.add_row("cadence", duration(answer["measured_cadence_ns"]), *(duration(ns) for ns in predicted["cadence_ns"]))
    table.add_row("kernel utilisation", "", *(percent(share) for share in predicted["kernel_utilisation"]))
    table.add_row("prove_start", "", *(duration(ms * 1e6) for ms in predicted["prove_start_ms"]))
    return [*parts, table, *told]
