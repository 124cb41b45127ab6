"""One palette, one vocabulary and one base figure for every chart; colours and words are keyed by Phase and GapCause.

The phases that share a lane and the causes that share a bar stay apart for protan, deutan and tritan eyes (tested);
waiting and idleness are hatched besides, so that no meaning hangs on colour alone.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from html import escape
from typing import Any, NamedTuple

import plotly.graph_objects as go

from cuzkbench import words
from cuzkbench.events import GapCause, Memory, Phase


class Paint(NamedTuple):
    """How a phase or cause looks and what charts call it (a cause: what the GPU waits for); an empty hatch is solid."""

    colour: str
    words: str
    hatch: str = ""


PHASES: dict[Phase, Paint] = {
    Phase.KERNEL: Paint("#009E73", "kernel"),
    Phase.H2D: Paint("#0072B2", "upload"),
    Phase.D2H: Paint("#56B4E9", "download"),
    Phase.LOCK_HOLD: Paint("#57606A", "GPU lock held"),
    Phase.LOCK_WAIT: Paint("#8A939C", "waiting for the lock", "/"),
    Phase.PREP: Paint("#E69F00", "CPU preparation"),
    Phase.ALLOC: Paint("#882255", "getting a host buffer"),
    Phase.STAGE: Paint("#E8A0BF", "staging copy"),
    Phase.FINISH: Paint("#F7F2A0", "CPU finish"),
    Phase.SYNTHESIS: Paint("#8C6BB1", "synthesis"),
    Phase.QUEUE: Paint("#B9A7D1", "ready, waiting for a worker", "/"),
    Phase.VERIFY: Paint("#6B8E23", "verification"),
    Phase.MEMSET: Paint("#B5D99C", "device memory set"),
    Phase.D2D: Paint("#2F4B26", "device to device copy"),
    Phase.HOST_SYNC: Paint("#C9CED3", "host blocked", "/"),
    Phase.OTHER: Paint("#9C8B6E", "other"),
    Phase.COUNTER: Paint("#000000", "counter"),
}
# hue: the phase that the GPU waits for, where there is one; hatch: the family, / bus, x lock, \ CPU, - input
_CAUSES: dict[GapCause, tuple[str, str]] = {
    GapCause.SLOW_TRANSFER: ("#D55E00", "/"),
    GapCause.TRANSFER: ("#0072B2", "/"),
    GapCause.LINK_CONTENTION: ("#56B4E9", "/"),
    GapCause.LOCKED_CPU: ("#E69F00", "x"),
    GapCause.LOCKED_TRANSFER: ("#004B77", "x"),
    GapCause.LOCKED_SLOW_TRANSFER: ("#A63A00", "x"),
    GapCause.LOCKED_OTHER: ("#57606A", "x"),
    GapCause.CPU_PREP: ("#E69F00", "\\"),
    GapCause.CPU_FINISH: ("#6B5D00", "\\"),
    GapCause.STAGING: ("#E8A0BF", "\\"),
    GapCause.WORKERS_BUSY: ("#9C8B6E", "\\"),
    GapCause.SYNTHESIS_STARVED: ("#8C6BB1", "-"),
    GapCause.ALLOCATION: ("#882255", "-"),
    GapCause.LAUNCH_OR_SYNC: ("#A9B1B8", "|"),
    GapCause.HOST_WAIT: ("#57606A", "|"),
    GapCause.UNATTRIBUTED: ("#111111", "."),
}
CAUSES = {cause: Paint(colour, words.CAUSES[cause], hatch) for cause, (colour, hatch) in _CAUSES.items()}
MEMORIES: dict[Memory, str] = {
    Memory.PAGEABLE: "#D55E00",
    Memory.PINNED: "#0072B2",
    Memory.REGISTERED: "#56B4E9",
    Memory.STAGED: "#E8A0BF",
    Memory.UNKNOWN: "#9AA1A8",
}
WRAP = "\u200b"  # after a line break that is only there for want of room
INK, SOFT, RULE, WARN = "#1F2328", "#57606A", "#D0D7DE", "#9A3412"
SERIES = ("#0072B2", "#D55E00", "#009E73", "#882255", "#E69F00", "#56B4E9", "#8C6BB1", "#57606A")  # runs, policies
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif"


def on(colour: str) -> str:
    """The ink that reads on a colour: white or nearly black, by relative luminance."""
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return INK if 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 > 0.26 else "#FFFFFF"


def marker(paint: Paint, **more: Any) -> dict[str, Any]:
    """A bar's marker: solid, with a hair line so that the shortest is seen, or hatched in its colour on white."""
    if not paint.hatch:
        return {"color": paint.colour, "line": {"color": paint.colour, "width": 0.5}} | more
    pattern = {"shape": paint.hatch, "fgcolor": paint.colour, "bgcolor": "#FFFFFF", "size": 6, "solidity": 0.45}
    return {"color": paint.colour, "pattern": pattern, "line": {"color": paint.colour, "width": 1}} | more


def wrapped(text: object, width: int = 56) -> str:
    """Text of a log or of ours, escaped and broken into lines; a mark of no width tells them from ours apart."""
    return f"<br>{WRAP}".join(escape(line) for line in textwrap.wrap(words.glued(str(text)), width)) or " "


def soft(text: object, width: int = 52) -> str:
    """The same with breaks that plotly draws as spaces and a report makes lines of where the screen is narrow."""
    return wrapped(text, width).replace(f"<br>{WRAP}", "\n")


def figure(title: str, labels: Iterable[str], says: str = "", height: int = 300, legend: bool = True) -> go.Figure:
    """The base of every chart: title, one plain sentence, and the log's labels where no reader can miss them.

    `height` is that of the plot area in pixels; heading, axis and legend come on top.
    """
    lines = [soft(says)] if says else []
    lines += [f"<span style='color:{WARN}'><b>{soft(label, 48)}</b></span>" for label in dict.fromkeys(labels)]
    top, bottom = 50 + 16 * len(lines), 48 + (26 if legend else 0)
    left = {"x": 0, "xref": "container", "xanchor": "left", "yref": "container"}
    heading = {"text": f"<b>{soft(title, 38)}</b>", "font": {"size": 15, "color": INK}, "pad": {"t": 10, "l": 4}}
    heading |= {"subtitle": {"text": "<br>".join(lines), "font": {"size": 12, "color": SOFT}}}
    keys = {"orientation": "h", "tracegroupgap": 0, "itemwidth": 30, "font": {"size": 11}}
    return go.Figure(
        layout={
            "title": heading | left | {"y": 1, "yanchor": "top"},
            "font": {"family": FONT, "size": 12, "color": INK},
            "paper_bgcolor": "#FFFFFF",
            "plot_bgcolor": "#FFFFFF",
            "template": "none",
            "height": height + top + bottom,
            "margin": {"t": top, "l": 8, "r": 14, "b": bottom},
            "meta": {"plot_height": height},
            "barmode": "overlay",
            "showlegend": legend,
            "legend": keys | left | {"y": 0, "yanchor": "bottom"},
            "hoverlabel": {"align": "left", "bgcolor": "#FFFFFF", "bordercolor": SOFT, "font": {"color": INK}},
            "hovermode": "closest",
            "modebar": {"remove": ["select2d", "lasso2d", "autoScale2d"]},
        }
    )


def level(x: Any, y: Any, name: str, **line: Any) -> go.Scatter:
    """A line that stands in the legend and says nothing on hovering."""
    return go.Scatter(x=x, y=y, name=name, mode="lines", line=line, hoverinfo="skip")


def mute(fig: go.Figure) -> go.Figure:
    """A figure of a log that has nothing to draw: its sentence stays, the empty axes go."""
    margins = fig.layout.margin.t + 10
    fig.update_layout(height=margins, margin={"b": 8}, meta={"plot_height": 2}, showlegend=False)
    return fig.update_xaxes(visible=False).update_yaxes(visible=False)


def axis(title: str = "", grid: bool = True, **more: Any) -> dict[str, Any]:
    """A plain numeric axis in our dress."""
    return {
        "title": {"text": title, "standoff": 8, "font": {"size": 12, "color": SOFT}},
        "type": "linear",
        "automargin": True,
        "showgrid": grid,
        "gridcolor": "#EAEEF2",
        "zeroline": False,
        "linecolor": RULE,
        "showline": True,
        "ticks": "outside",
        "tickcolor": RULE,
        "ticklen": 4,
        "autotickangles": [0],
        "exponentformat": "none",
        "separatethousands": True,
    } | more
