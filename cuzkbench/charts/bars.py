"""Charts of amounts: idle time by cause, bandwidth by memory kind, what each theory would gain."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from cuzkbench.analysis.gaps import gaps
from cuzkbench.analysis.metrics import bandwidth as bandwidths
from cuzkbench.analysis.metrics import metrics
from cuzkbench.analysis.theories import REJECTED_BELOW, SUPPORTED_FROM
from cuzkbench.analysis.theories import theories as tested
from cuzkbench.charts.lanes import each
from cuzkbench.charts.palette import CAUSES, INK, MEMORIES, SOFT, Paint, axis, figure, marker, mute, wrapped
from cuzkbench.events import GapCause, Memory
from cuzkbench.logs.log import Log
from cuzkbench.words import duration, rate, rate_unit, size

_ROW_PX = 36
_VERDICTS = {
    "supported": Paint("#D55E00", "supported"),
    "cannot tell": Paint("#57606A", "cannot tell", "/"),
    "rejected": Paint("#B8C0C8", "rejected"),
}


class _Row(NamedTuple):
    """One bar: what stands before it, and from where to where it reaches."""

    name: str
    amount: str
    base: float
    length: float
    paint: Paint
    hover: str = ""


def _rows(fig: go.Figure, rows: list[_Row], title: str, unit: str, limit: float) -> go.Figure:
    """Bars under one another; name and amount stand before the bar, where they never run into anything."""
    if not rows:
        return mute(fig)
    for place, row in enumerate(rows):
        where = {"x": [row.length], "base": [row.base], "y": [place], "width": 0.62, "orientation": "h"}
        told = {"hovertext": row.hover or row.amount, "hoverinfo": "text", "showlegend": False}
        fig.add_trace(go.Bar(**where, **told, marker=marker(row.paint)))
    small = "<br><span style='font-size:11px;color:" + SOFT + "'>{}</span>"
    names = [row.name + small.format(row.amount) for row in rows]
    lanes: dict[str, Any] = {"tickvals": list(range(len(rows))), "ticktext": names, "range": [len(rows) - 0.5, -0.5]}
    fig.update_yaxes(axis(grid=False, fixedrange=True, ticks="", **lanes))
    return fig.update_xaxes(axis(title, ticksuffix=unit, range=[0, limit or 1]))


def _share(part: int, whole: int) -> str:
    """A share with one digit that calls nothing all of the time, or none of it, unless it is."""
    share = part / max(whole, 1)
    if 0 < share < 0.0005:
        return "under 0.1%"
    return "over 99.9%" if 0.9995 <= share < 1 else f"{share:.1%}"


def causes(log: Log) -> go.Figure:
    """Idle time of each GPU by cause, laid end to end so that the bars visibly sum to all idle time."""
    idle = gaps(log)
    idle = idle.assign(length=idle["end_ns"] - idle["start_ns"])
    rows: list[_Row] = []
    says = []
    for gpu in each(metrics(log)):
        who = f"GPU {gpu.gpu}: " if len(log.gpus) > 1 else ""
        sums = idle[idle["gpu"] == gpu.gpu].groupby("cause", observed=True)["length"].agg(["sum", "count"])
        base = 0
        for cause, total, count in each(sums.sort_values("sum", ascending=False, kind="stable")):
            paint, amount = CAUSES[GapCause[cause]], f"{duration(total)}, {_share(total, gpu.idle_ns)}"
            told = f"<b>{paint.words}</b> {amount} in {count} stretches<br>{wrapped(GapCause[cause].meaning)}"
            rows.append(_Row(who + paint.words, amount, base / 1e9, total / 1e9, paint, told))
            base += total
        rows.append(_Row(f"<b>{who}all idle time</b>", duration(gpu.idle_ns), 0, gpu.idle_ns / 1e9, Paint(SOFT, "")))
        share = f"{duration(gpu.idle_ns)} of {duration(gpu.window_ns)}, {1 - gpu.kernel_utilisation:.1%}"
        says.append(f"{who or 'The GPU '}was idle for {share}.".replace(": ", " "))
    title = f"{log.title}: what did the GPU wait for"
    fig = figure(title, log.labels, " ".join(says) or "This log shows no kernels.", _ROW_PX * len(rows), legend=False)
    window = max(metrics(log)["window_ns"], default=0) / 1e9
    longest = max((row.base + row.length for row in rows), default=0)
    return _rows(fig, rows, "idle time", " s", max(1.02 * longest, 0.1 * window))


def bandwidth(log: Log) -> go.Figure:
    """Effective bandwidth by direction and memory kind, the single copies as dots, the line rate as a mark."""
    rows, rates = [], []
    copies = log.frame[(log.frame["bytes"] > 0) & (log.frame["end_ns"] > log.frame["start_ns"])]
    for row in each(bandwidths(log).sort_values(["direction", "memory", "gpu"], ascending=[False, True, True])):
        who = f"GPU {row.gpu}: " if len(log.gpus) > 1 else ""
        name = f"{who}{'upload' if row.direction == 'H2D' else 'download'}, {row.memory.lower()}"
        amount = f"{rate(row.gb_s)}, {size(row.bytes)}"
        mine = copies[
            (copies["phase"] == row.direction) & (copies["memory"] == row.memory) & (copies["gpu"] == row.gpu)
        ]
        single = mine["bytes"] / (mine["end_ns"] - mine["start_ns"])
        told = f"<b>{name}</b><br>{len(mine):,} copies, {amount} in {duration(row.duration_ns)}"
        rows.append(_Row(name, amount, 0, row.gb_s, Paint(MEMORIES[Memory[row.memory]], name), told))
        rates.append((single, row.line_rate_gb_s, row.line_rate_source))
    says = "Bars: bytes over copying time. Dots: single copies. Line: what a pinned copy reaches here."
    says = says if rows else "This log shows no copies."
    fig = figure(f"{log.title}: how fast did data cross the bus", log.labels, says, _ROW_PX * len(rows), legend=False)
    limit = max([row.length for row in rows] + [line for _, line, _ in rates if pd.notna(line)], default=1.0)
    scale, unit = rate_unit(limit)
    rows = [row._replace(length=row.length * scale) for row in rows]
    _rows(fig, rows, f"bandwidth, {unit}", "", 1.08 * limit * scale)
    for place, (single, line, source) in enumerate(rates):
        dots = {"color": "#FFFFFF", "size": 5, "line": {"color": INK, "width": 1}}
        many = single.quantile(np.linspace(0, 1, 21)) if len(single) > 200 else single
        fig.add_trace(go.Scatter(x=many * scale, y=[place] * len(many), mode="markers", marker=dots, hoverinfo="skip"))
        if pd.notna(line):
            said = {"hovertext": f"line rate {rate(line)} ({wrapped(source)})", "hoverinfo": "text"}
            ends = {"x": [line * scale] * 2, "y": [place - 0.42, place + 0.42], "mode": "lines"}
            fig.add_trace(go.Scatter(**ends, **said, line={"color": INK, "width": 3}))
    return fig


def theories(log: Log) -> go.Figure:
    """What each theory would gain if its fault alone were mended, against the shares that decide its verdict."""
    window = max(int(metrics(log)["window_ns"].sum()), 1)
    rows, table = [], tested(log)
    title = f"{log.title}: which theory holds"
    if (table["verdict"] == "cannot tell").all() and table["why"].nunique() == 1:
        return mute(figure(title, log.labels, f"This log cannot tell: {table['why'].iloc[0]}.", legend=False))
    for row in each(table):
        share = row.explained_idle_ns / window
        cadence = f", cadence {duration(row.predicted_cadence_ns)}" if pd.notna(row.predicted_cadence_ns) else ""
        told = f"<b>{row.name}: {row.verdict}</b><br>{wrapped(row.why)}"
        rows.append(_Row(row.name, f"{row.verdict}{cadence}", 0, share, _VERDICTS[row.verdict], told))
    says = "Idle that would go, as a share of the run, if this fault alone were mended. Lines: rejected under"
    says += f" {REJECTED_BELOW:.0%}, supported from {SUPPORTED_FROM:.0%}."
    fig = figure(title, log.labels, says, _ROW_PX * len(rows), legend=False)
    for share in (REJECTED_BELOW, SUPPORTED_FROM):
        fig.add_vline(share, line={"color": SOFT, "width": 1, "dash": "dot"})
    limit = max(0.1, 1.05 * max((row.length for row in rows), default=0))
    return _rows(fig, rows, "share of the run", "", limit).update_xaxes(tickformat=".0%")
