"""What a report says in words and tables: verdict, figures, theories, comparison, provenance, how to reproduce.

Logs are untrusted: every text of theirs is escaped here, and only the header fields named here reach a page.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path, PurePath
from typing import Any

from IPython.display import HTML

from cuzkbench import report
from cuzkbench.analysis.gaps import gaps, idle_by_cause
from cuzkbench.analysis.metrics import bandwidth, metrics
from cuzkbench.analysis.shown import said
from cuzkbench.charts.lanes import each
from cuzkbench.events import GapCause
from cuzkbench.logs.log import Log, told_apart
from cuzkbench.plan import RunPlan
from cuzkbench.words import CAUSES, NONE, duration, glued, percent, rate, size

_HOST: dict[str, Callable[[Any], str]] = {
    "cpu": str, "cores": "{} cores".format, "memory_bytes": lambda count: f"{size(count)} of memory", "os": str,
    "python": "Python {}".format,
}  # fmt: skip
Answer = Mapping[str, Any]  # what `analysis.explain` says of a log
_COMPARED = (
    "kernel_utilisation", "idle_ns", "cadence_ns", "median_cadence_ns", "ideal_cadence_ns", "efficiency",
    "hidden_transfer", "interleaving", "lock_utilisation", "worker_utilisation",
)  # fmt: skip
_CARDS = ("kernel utilisation", "cadence against ideal", "upload against line rate", "proofs verified")
SMALL_IDLE = 0.05  # of the window: less than this is not worth a sentence about its cause


def heading(logs: Sequence[Log], answers: Sequence[Answer]) -> HTML:
    """The title, what every reader must know of these logs, the verdict on each, and the reader's notes."""
    labels = dict.fromkeys(label for log in logs for label in log.labels)
    names = told_apart(logs)
    page = f"<h1>Why is the GPU idle? {escape(' against '.join(names))}</h1>"
    notes = ""
    for name, answer in zip(names, answers, strict=True):
        who = f"{name}: " if len(logs) > 1 else ""
        labels |= dict.fromkeys(who + broken for broken in _broken(answer))
        notes += "".join(f"<li>{escape(who + note)}</li>" for note in answer["warnings"] if note not in labels)
    page += "".join(f'<p class="label">{escape(text)}</p>' for text in labels)
    for name, answer in zip(names, answers, strict=True):
        page += f'<p class="verdict">{escape((f"{name}: " if len(logs) > 1 else "") + verdict(answer))}</p>'
    told = f"<details><summary>Notes from reading ({notes.count('<li>')})</summary><ul>{notes}</ul></details>"
    return HTML(page + (told if notes else ""))


def verdict(answer: Answer) -> str:
    """Two plain sentences: what the GPU did and waited for, and the one change that gains most."""
    used = [gpu for gpu in answer["gpus"] if gpu["window_ns"]]
    if not used:
        return "This log shows no GPU activity, so it says nothing about an idle GPU."
    sentences = []
    for gpu in used:
        who = "the GPU" if len(used) == 1 else f"GPU {gpu['gpu']}"
        text = f"{who} computed {percent(gpu['kernel_utilisation'])} of {duration(gpu['window_ns'])}"
        if gpu["idle_ns"] > SMALL_IDLE * gpu["window_ns"]:
            cause, most = next(iter(gpu["causes"].items()))
            share, words = percent(most / gpu["idle_ns"]), CAUSES[GapCause[cause]]
            text += f" and was idle for {duration(gpu['idle_ns'])}, {share} of that waiting for {words}"
        text += f": {gpu['course']}" if len(gpu["stretches"]) > 1 else ""
        sentences.append(text)
    first = "; ".join(sentences)
    first = f"{first[0].upper()}{first[1:]}."
    if lack := _untold(answer):
        return f"{first} Which theory holds the log cannot tell: {lack}."
    supported = [theory["name"] for theory in answer["theories"] if theory["verdict"] == "supported"]
    holds = f"The log supports {' and '.join(supported)}" if supported else "The log supports none of the theories"
    if supported == ["compute-bound"]:
        holds = "The GPU itself is the limit"
    best, change = answer["best_change"], "no change of the plan is predicted to gain anything"
    if best:
        change = f"with {best['change']} the predicted cadence is {duration(best['predicted_cadence_ns'])}"
        change += f" instead of {duration(used[0]['cadence_ns'])}"
    return f"{first} {holds}; {change}."


def _untold(answer: Answer) -> str:
    """Why the log can tell of no theory that a replay tests; empty where it can of one, or where the GPU is busy."""
    tested = [one for one in answer["theories"] if one["name"] != "compute-bound" or one["verdict"] == "supported"]
    whys = {theory["why"] if theory["verdict"] == "cannot tell" else "" for theory in tested}
    return whys.pop() if len(whys) == 1 else ""


def _broken(answer: Answer) -> list[str]:
    if answer["cut_at"]:
        return [f"the log breaks off at {answer['cut_at']}"]
    return [] if answer["complete"] else ["the run did not end: its log has no trailer"]


def cards(logs: Sequence[Log]) -> HTML:
    """Four figures: kernel utilisation, cadence against ideal, upload bandwidth against line rate, proofs verified."""
    figures: list[tuple[str, str, str, str]] = []
    names = told_apart(logs) if len(logs) > 1 else [""]
    for name, log in zip(names, logs, strict=True):
        uploads = bandwidth(log).query("direction == 'H2D'")
        for gpu in each(metrics(log)):
            who = name + (f" GPU {gpu.gpu}" if len(log.gpus) > 1 else "")
            mine = uploads[uploads["gpu"] == gpu.gpu]
            reached, against = NONE, "no uploads"
            if len(mine):
                reached = rate(mine["bytes"].sum() / mine["duration_ns"].sum())
                assumed = " assumed" if (mine["line_rate_source"] == "assumed").any() else ""
                against = f"against {rate(mine['line_rate_gb_s'].max())}{assumed}"
            used, idle = percent(gpu.kernel_utilisation), f"idle {duration(gpu.idle_ns)}"
            figures.append(("kernel utilisation", who, used, idle))
            ideal = f"ideal {duration(gpu.ideal_cadence_ns)}"
            figures.append(("cadence against ideal", who, duration(gpu.cadence_ns), ideal))
            figures.append(("upload against line rate", who, reached, against))
        proofs = (log.trailer or {}).get("proofs") or {}
        verified, made = NONE, "none made"
        if proofs.get("made") is not None:
            verified, made = str(int(proofs.get("verified") or 0)), f"of {int(proofs['made'])} made"
        figures.append(("proofs verified", name, verified, made))
    cells = ""
    for kind in _CARDS:
        cells += f"<section><h3>{kind}</h3>"
        for who, value, more in (rest for named, *rest in figures if named == kind):
            run = f"<span class=run>{escape(who)}</span>" if who else ""
            cells += f"<p>{run}<b>{escape(value)}</b> <span>{escape(more)}</span></p>"
        cells += "</section>"
    return HTML(f'<div class="cards{" several" if len(logs) > 1 else ""}">{cells}</div>')


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[object]],
    caption: str = "",
    mark: Iterable[int] = (),
    stacks: bool = False,
) -> HTML:
    """A table of texts, all escaped; the first cell of a row names it, the rows in `mark` stand out.

    One that `stacks` has its cells under one another on a narrow screen, each with its column's name.
    """
    marked = set(mark)
    body = ""
    for number, (first, *rest) in enumerate(rows):
        cells = f'<th scope="row">{escape(str(first))}</th>' + "".join(
            f'<td data-head="{escape(name)}">{escape(glued(str(cell)))}</td>'
            for name, cell in zip(head[1:], rest, strict=True)
        )
        body += f"<tr{' class=differs' if number in marked else ''}>{cells}</tr>"
    top = f"<thead><tr>{''.join(f'<th>{escape(name)}</th>' for name in head)}</tr></thead>" if any(head) else ""
    said = f"<caption>{escape(caption)}</caption>" if caption else ""
    return HTML(
        f'<div class="scroll"><table{" class=stacks" if stacks else ""}>{said}{top}<tbody>{body}</tbody></table></div>'
    )


def theories(log: Log, answer: Answer) -> HTML:
    """Each theory, the log's verdict, what mending it alone would give, why, and the numbers behind it."""
    if lack := _untold(answer):
        return HTML(f"<p>{escape(f'{log.title}: which theory holds the log cannot tell: {lack}.')}</p>")
    rows = []
    for theory in answer["theories"]:
        gain = duration(theory["explained_idle_ns"]), duration(theory["predicted_cadence_ns"])
        rows.append((theory["name"], theory["verdict"], *gain, theory["why"], said("evidence", theory["evidence"])))
    head = ("theory", "verdict", "idle removed", "cadence then", "why", "in the log")
    return table(head, rows, caption=log.title, stacks=True)


def differences(logs: Sequence[Log]) -> HTML:
    """How each later run differs from the first: knobs, cadence, utilisation, and what the GPU no longer waits for."""
    items = ""
    first, *others = logs
    before, waits = metrics(first), idle_by_cause(gaps(first))
    base, *names = told_apart(logs)
    for name, log in zip(names, others, strict=True):
        now, cause = metrics(log), idle_by_cause(gaps(log))
        asked = _knobs([first, log]).items()
        knobs = [f"{knob} ({_said(mine)} instead of {_said(its)})" for knob, (its, mine) in asked if its != mine]
        text = f"{name} differs from {base} in {', '.join(knobs) or 'no knob of its plan'}. A partition every "
        text += " instead of ".join(duration(frame["cadence_ns"].mean()) for frame in (now, before)) + "; kernels run "
        text += " instead of ".join(percent(frame["kernel_utilisation"].mean()) for frame in (now, before))
        text += " of the time."
        moved = {one: (cause.get(one, 0), waits.get(one, 0)) for one in sorted({*cause, *waits})}
        if moved:
            most = max(moved, key=lambda one: abs(moved[one][0] - moved[one][1]))
            text += f" Waiting for {CAUSES[GapCause[most]]}: {' instead of '.join(map(duration, moved[most]))}."
        items += f"<p>{escape(text)}</p>"
    return HTML(f'<div class="differences">{items}</div>' if items else "")


def _knobs(logs: Sequence[Log]) -> dict[str, list[Any]]:
    """What each run was asked to do, by knob."""
    names = [f.name for f in dataclasses.fields(RunPlan) if f.name not in ("preset", "seed", "verify", "timing")]
    shown = {name: name.replace("_", " ").replace("cpu", "CPU").replace("gpus", "GPUs") for name in names}
    return {shown[name]: [(log.header["plan"] or {}).get(name) for log in logs] for name in names}


def _said(value: object) -> str:
    return NONE if value is None else str(value)


def comparison(logs: Sequence[Log]) -> HTML:
    """What the runs were asked to do and what came of it, side by side; differing knobs stand out."""
    asked = {knob: values for knob, values in _knobs(logs).items() if any(value != values[0] for value in values)}
    rows: list[list[object]] = [[knob, *map(_said, values)] for knob, values in asked.items()]
    mark = range(len(rows))
    frames = [metrics(log).to_dict("records") for log in logs]
    for key in _COMPARED:
        name = key.removesuffix("_ns").replace("_", " ")
        rows.append([name, *(", ".join(said(key, gpu[key]) for gpu in frame) or NONE for frame in frames)])
    caption = "Highlighted: where the plans differ." if mark else "The plans do not differ." if len(logs) > 1 else ""
    return table(("", *told_apart(logs)), rows, caption, mark)


def provenance(logs: Sequence[Log]) -> HTML:
    """Machine, versions, plan, seed and the log's own state; only fields named here, whatever a header holds."""
    facts = [_facts(log) for log in logs]
    names = dict.fromkeys(name for fact in facts for name in fact)
    rows = ([name, *(fact.get(name, NONE) for fact in facts)] for name in names)
    return table(("", *told_apart(logs)), rows, stacks=len(logs) > 1)


def _facts(log: Log) -> dict[str, str]:
    header, trailer = log.header, log.trailer or {}
    host, plan, source = header["host"] or {}, header["plan"] or {}, header["source"] or {}
    facts: dict[str, Any] = {
        "device": f"{log.device_name} ({log.kind})",
        "kernels": header["kernels"],
        "driver": header["driver"],
        "machine": ", ".join(form(host[key]) for key, form in _HOST.items() if host.get(key) is not None),
        "versions": ", ".join(f"{name} {version}" for name, version in sorted((header["versions"] or {}).items())[:40]),
        "plan": ", ".join(
            f"{f.name} {plan[f.name]}" for f in dataclasses.fields(RunPlan) if plan.get(f.name) is not None
        ),
        "seed": header["seed"],
        "started": header["epoch_utc"],
        "line rate": _rates(header["line_rate_gb_s"]),
        "rows": f"{len(log.frame):,}",
        "format": log.format
        + (f" of {', '.join(PurePath(str(f)).name for f in source['files'])}" if source.get("files") else ""),
        "ended": trailer.get("ended", "the log has no trailer"),
        "hooks": _hooks(trailer.get("hooks")),
        "warnings": "; ".join(dict.fromkeys(map(str, (*header["warnings"], *log.warnings)))),
    }
    return {name: str(value)[:600] for name, value in facts.items() if value not in (None, "")}


def _rates(rates: Mapping[str, Any] | None) -> str:
    return "; ".join(
        f"{direction} "
        + ", ".join(f"{rate(value)} {when}" for when, value in by.items() if isinstance(value, int | float))
        for direction, by in (rates or {}).items()
        if direction in ("H2D", "D2H") and isinstance(by, Mapping)
    )


def _hooks(hooks: Mapping[str, Any] | None) -> str:
    if not hooks or not isinstance(hooks.get("events"), int):
        return ""
    return f"{hooks['events']:,} events" + (f", {duration(hooks['cost_ns'])} in all" if hooks.get("cost_ns") else "")


def downloads(paths: Sequence[str]) -> HTML:
    """Links to the logs that the page carries, filled by its script; a log that is too large is named."""
    items = ""
    for path in map(Path, paths):
        link, big = f'<a data-file="{escape(path.name)}">{escape(path.name)}</a>', size(path.stat().st_size)
        text = link if report.embeds(path) else f"{escape(path.name)}: with {big} too large to be carried by this page"
        items += f"<li>{text}</li>"
    return HTML(f"<ul>{items}</ul>")


def reproduce(logs: Sequence[Log], names: Sequence[str]) -> HTML:
    """The exact commands that make these runs and this page again."""
    lines = []
    for log, name in zip(logs, names, strict=True):
        if log.header["plan"]:
            try:
                lines.append(command(log, name))
            except ValueError as unknown:  # a plan of another version: said, not guessed
                lines.append(f"# {log.title}: {' '.join(str(unknown).split())}")
    lines.append(shlex.join(["cuzkbench", "report", *names, "-o", "report.html"]))
    return HTML(f'<pre class="command">{escape(chr(10).join(lines))}</pre>')


def command(log: Log, output: str) -> str:
    """The command line of a run: its preset and every knob that the preset does not set so; raises ValueError."""
    plan = RunPlan.from_mapping(log.header["plan"])
    if plan.seed is None and log.header["seed"] is not None:
        plan = plan.replace(seed=int(log.header["seed"]))
    base = RunPlan.named(plan.preset) if plan.preset else RunPlan()
    words = ["cuzkbench", "run"]
    for name, value in plan.as_mapping().items():
        option = "--" + name.replace("_", "-")
        if value is None or (value == getattr(base, name) and name not in ("preset", "device")):
            continue
        switch = [option if value else option.replace("--", "--no-", 1)]
        words += switch if isinstance(value, bool) else [option, str(value)]
    return shlex.join([*words, "-o", output])
