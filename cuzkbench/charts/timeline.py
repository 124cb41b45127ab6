"""Who waits for what: compute, copies, lock, workers and synthesis as lanes over time, the GPU's idle gaps shaded.

Up to EXACT_MARKS marks every row is a bar. Beyond, one panel shows the exact busy fraction of each lane (computed from
the intervals, nothing is sampled) with the largest gaps as bars, and a second panel shows every mark of one window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from cuzkbench.analysis.gaps import gaps
from cuzkbench.analysis.intervals import overlap
from cuzkbench.analysis.metrics import metrics
from cuzkbench.charts import lanes
from cuzkbench.charts.lanes import COMPUTE, STRIDE, SYNTHESIS, TITLED, Track, each
from cuzkbench.charts.palette import CAUSES, INK, PHASES, RULE, axis, figure, marker, on, soft, wrapped
from cuzkbench.events import Phase
from cuzkbench.logs.log import Log, told_apart
from cuzkbench.words import duration, percent

EXACT_MARKS = 5_000
WINDOW_MARKS = 1_200  # in the exact panel under a heatmap
BINS = 800  # steps of a heatmap
LARGEST_GAPS = 40  # drawn as bars over a heatmap
TORN = 1 / 300  # of the range: a longer break within a partition's bars is seen, and its name stands beside it
UNSEEN = 1 / 2_000  # of the range: shorter gaps are narrower than a pixel and are counted instead of drawn
_LANE_PX, _AXIS_PX, _HEADING = 30, 46, 50  # pixels a lane and an axis, characters a line of a heading
_NAMED = (Phase.KERNEL, Phase.H2D, Phase.LOCK_HOLD, Phase.SYNTHESIS)  # phases whose bars carry the partition


@dataclass(frozen=True)
class _Panel:
    rows: pd.DataFrame
    lanes: list[Track]
    gaps: pd.DataFrame
    low: float  # the visible range in seconds since origin_ns
    high: float
    heading: str = ""
    origin_ns: int = 0
    heat: bool = False

    @property
    def units(self) -> float:
        return self.lanes[-1].top + self.lanes[-1].height if self.lanes else 1.0

    @property
    def head_px(self) -> int:
        return 10 + 17 * (wrapped(self.heading, _HEADING).count("<br>") + 1) if self.heading else 0

    def seconds(self, ns: Any) -> np.ndarray:
        """Instants as numbers on this panel's axis, never dates."""
        return (np.asarray(ns, np.int64) - self.origin_ns) / 1e9


def measured(log: Log) -> tuple[int, int]:
    """From the first kernel after the warm-up to the last kernel over all GPUs, ns; the whole log where none ran."""
    windows = metrics(log)
    windows = windows[windows["window_ns"] > 0]
    if windows.empty:
        return (int(log.frame["start_ns"].min()), int(log.frame["end_ns"].max())) if len(log.frame) else (0, 1)
    return int(windows["window_start_ns"].min()), int(windows["window_end_ns"].max())


def gantt(log: Log, window: tuple[float, float] | None = None) -> go.Figure:
    """The lanes of one log over seconds since its epoch; `window` (seconds) keeps only what touches that range."""
    rows, idle = lanes.marks(log, window), gaps(log)
    first, last = measured(log)
    margin = 0.02 * (last - first)
    low, high = window or ((first - margin) / 1e9, (last + margin) / 1e9)
    title, says = f"{log.title}: who waits for what", f"{summary(log)} Hatched: the GPU waits."
    says += " p3 is partition 3." if (rows["partition"] >= 0).any() else ""
    if len(rows) <= EXACT_MARKS:
        rows = lanes.packed(rows)
        return _stacked(title, says, log.labels, [_Panel(rows, lanes.tracks(log, rows), idle, low, high)])
    largest = idle.loc[(idle["end_ns"] - idle["start_ns"]).nlargest(LARGEST_GAPS).index]
    near = lanes.packed(_around(rows, int(largest["start_ns"].iloc[0]) if len(largest) else first))
    near_low, near_high = near["start_ns"].min() / 1e9, near["start_ns"].max() / 1e9
    whole = f"How busy each lane is, and the {len(largest)} largest gaps"
    close = f"Every mark from {near_low:,.3f} s to {near_high:,.3f} s, at the largest gap"
    says += f" {len(rows):,} marks are merged into {BINS} exact steps a lane; {len(near):,} are drawn singly below."
    panels = [
        _Panel(rows, lanes.tracks(log, rows), largest, low, high, whole, heat=True),
        _Panel(near, lanes.tracks(log, near), idle, near_low, near_high, close),
    ]
    return _stacked(title, says, log.labels, panels)


def compare(logs: Sequence[Log]) -> go.Figure:
    """Several logs over one time axis, each from its first measured kernel; headings say utilisation and cadence."""
    panels = []
    for name, log in zip(told_apart(logs), logs, strict=True):
        first, last = measured(log)
        rows = lanes.marks(log, (first / 1e9, last / 1e9))
        rows = rows[rows["key"] % STRIDE < SYNTHESIS]  # what feeds the queue has its place in the chart of one log
        heat = len(rows) > EXACT_MARKS // len(logs)
        rows = rows if heat else lanes.packed(rows)
        words, high = f"{name}: {summary(log)}", (last - first) / 1e9
        panels.append(_Panel(rows, lanes.tracks(log, rows), gaps(log), 0.0, high, words, first, heat))
    high = max(panel.high for panel in panels)
    panels = [replace(panel, low=-0.01 * high, high=1.01 * high) for panel in panels]
    says = "Each run from its first measured kernel, on one time axis. Hatched: the GPU waits."
    labels = [label for log in logs for label in log.labels]
    return _stacked(" against ".join(told_apart(logs)), says, labels, panels, True)


def summary(log: Log) -> str:
    """One sentence a GPU: its kernel utilisation, window and cadence."""
    words = []
    for row in each(metrics(log)):
        if row.window_ns:
            cadence = f", cadence {duration(row.cadence_ns)}" if pd.notna(row.cadence_ns) else ""
            who = f"GPU {row.gpu}" if len(log.gpus) > 1 else "GPU"
            words.append(f"{who} busy {percent(row.kernel_utilisation)} of {duration(row.window_ns)}{cadence}.")
    return " ".join(words) or "No kernels ran."


def _around(rows: pd.DataFrame, instant_ns: int) -> pd.DataFrame:
    by_start = rows.sort_values(["start_ns", "key"], kind="stable", ignore_index=True)
    at = int(np.searchsorted(by_start["start_ns"].to_numpy(), instant_ns)) - WINDOW_MARKS // 2
    low = max(0, min(at, len(by_start) - WINDOW_MARKS))
    return by_start.iloc[low : low + WINDOW_MARKS]


def _bar(panel: _Panel, when: tuple[Any, Any], where: tuple[Any, Any], **look: Any) -> go.Bar:
    """Bars from start to end (ns), at the middle and of the height in lanes."""
    base = panel.seconds(when[0])
    return go.Bar(orientation="h", base=base, x=panel.seconds(when[1]) - base, y=where[0], width=where[1], **look)


def _idle(panel: _Panel) -> list[go.Bar]:
    """The gaps by cause: hatched in the compute lane of their GPU, and a faint band through all lanes to look along."""
    traces = []
    compute = {track.key // STRIDE: track for track in panel.lanes if track.key % STRIDE == COMPUTE}
    start, end = panel.seconds(panel.gaps["start_ns"]), panel.seconds(panel.gaps["end_ns"])
    least = 0 if panel.heat else UNSEEN * (panel.high - panel.low)
    seen = (end - start > least) & (end > panel.low) & (start < panel.high)
    drawn = panel.gaps[seen & panel.gaps["gpu"].isin(list(compute)).to_numpy()]
    for cause, paint in CAUSES.items():
        mine = drawn[drawn["cause"] == cause]
        if mine.empty:
            continue
        when, own = (mine["start_ns"], mine["end_ns"]), [compute[gpu] for gpu in mine["gpu"]]
        if len(compute) == 1:
            band = {"marker": {"color": paint.colour, "line": {"width": 0}}, "opacity": 0.1, "hoverinfo": "skip"}
            everywhere = [panel.units / 2] * len(mine), [panel.units] * len(mine)
            traces.append(_bar(panel, when, everywhere, **band))
        texts = [
            f"<b>idle {duration(end - start)}, waiting for {paint.words}</b><br>{wrapped(f'{cause.meaning} {why}')}"
            for start, end, why in zip(*when, mine["why"], strict=True)
        ]
        where = [track.middle for track in own], [track.height * 0.84 for track in own]
        look = {"marker": marker(paint), "hovertext": texts, "hoverinfo": "text"}
        look |= {"name": f"GPU waits for {paint.words}", "legendgroup": f"cause {cause}"}
        traces.append(_bar(panel, when, where, **look))
    return traces


def _bars(panel: _Panel) -> list[go.Bar]:
    """One trace a phase, and one of partition names over those bars that have the room."""
    traces = []
    middle, height = lanes.places(panel.rows, panel.lanes)
    texts = np.array(lanes.hover(panel.rows), object)
    for phase, paint in PHASES.items():
        mine = (panel.rows["phase"] == phase).to_numpy()
        if mine.any():
            rows = panel.rows[mine]
            faded = np.where(rows["warmup"], 0.35, 1.0) if rows["warmup"].any() else 1.0
            look = {"marker": marker(paint, opacity=faded), "hovertext": texts[mine], "hoverinfo": "text"}
            group = "" if phase in TITLED.values() else str(phase)  # a phase that names its lane needs no legend
            look |= {"name": paint.words, "legendgroup": group}
            traces.append(_bar(panel, (rows["start_ns"], rows["end_ns"]), (middle[mine], height[mine]), **look))
    told = (panel.rows["phase"].isin(_NAMED) & (panel.rows["partition"] >= 0)).to_numpy()
    spans = panel.rows[told].assign(middle=middle[told], height=height[told])
    by = ["key", "phase", "job", "partition", "middle", "height"]
    spans = _pieces(spans, by, round((panel.high - panel.low) * 1e9 * TORN))
    if len(spans):
        ink = [on(PHASES[Phase[phase]].colour) for phase in spans["phase"]]
        low, high = (panel.origin_ns + round(edge * 1e9) for edge in (panel.low, panel.high))
        seen = spans["start"].clip(low, high), spans["end"].clip(low, high)  # a name stands in what is seen of its bar
        text = {"text": [f"p{part}" for part in spans["partition"]], "textposition": "inside", "textangle": 0}
        text |= {"insidetextanchor": "middle", "insidetextfont": {"color": ink, "size": 11}, "hoverinfo": "skip"}
        clear = {"color": "rgba(0,0,0,0)", "line": {"width": 0}}
        traces.append(_bar(panel, seen, (spans["middle"], spans["height"]), marker=clear, **text))
    return traces


def _pieces(spans: pd.DataFrame, by: list[str], slack_ns: int) -> pd.DataFrame:
    """The longest piece of each group of rows without a break of more than slack_ns: where a name is read as one."""
    spans = spans.sort_values([*by, "start_ns", "end_ns"], kind="stable", ignore_index=True)
    groups = [spans[name] for name in by]
    before = spans.groupby(groups, observed=True)["end_ns"].cummax().groupby(groups, observed=True).shift()
    spans["piece"] = (spans["start_ns"] - before > slack_ns).cumsum()
    ends = {"start": ("start_ns", "min"), "end": ("end_ns", "max")}
    pieces = spans.groupby([*by, "piece"], observed=True).agg(**ends).reset_index()
    length = (pieces["end"] - pieces["start"]).sort_values(kind="stable")
    return pieces.loc[length.index].drop_duplicates(by, keep="last").sort_index(ignore_index=True)


def _heat(panel: _Panel) -> list[go.Heatmap]:
    """One row of cells a lane: the exact share of each step in which the lane works, white to the lane's colour."""
    low, high = (panel.origin_ns + round(edge * 1e9) for edge in (panel.low, panel.high))
    edges = np.linspace(low, high, BINS + 1).astype(np.int64)
    traces = []
    for track in panel.lanes:
        share = overlap(edges[:-1], edges[1:], lanes.busy(panel.rows, track.key)) / np.diff(edges)
        where = {"x": panel.seconds(edges), "y": [track.top + 0.08, track.top + track.height - 0.08]}
        cells = {"z": share[None, :].astype(np.float32), "zmin": 0, "zmax": 1, "showscale": False}
        colours = [[0, "#FFFFFF"], [1, lanes.paint_of(track.key).colour]]
        told = f"<b>{track.title.split('<br>')[0]}</b> %{{z:.1%}} busy<br>at %{{x:.4f}} s<extra></extra>"
        traces.append(go.Heatmap(**where, **cells, colorscale=colours, hovertemplate=told))
    return traces


def _stacked(title: str, says: str, labels: Sequence[str], panels: list[_Panel], shared: bool = False) -> go.Figure:
    """Panels under one another; those of one shared time axis show it once, at the foot."""
    tall = [panel.head_px + panel.units * _LANE_PX for panel in panels]
    feet = [12 if shared else _AXIS_PX] * (len(panels) - 1) + [0]  # the last axis lies outside of the plot area
    total = sum(tall) + sum(feet)
    fig = figure(title, labels, says, height=round(total))
    shown: set[str] = set()
    bottom = 0.0  # pixels from the top of the plot area
    for number, (panel, height, foot) in enumerate(zip(panels, tall, feet, strict=True), start=1):
        bottom += height
        last, suffix = number == len(panels), "" if number == 1 else str(number)
        top = 1 - (bottom - panel.units * _LANE_PX) / total
        words = "time since the first measured kernel" if shared else "time since the start"
        time = axis(words if last else "", range=[panel.low, panel.high], anchor=f"y{suffix}", ticksuffix=" s")
        time |= {"showticklabels": last or not shared} | ({"matches": "x"} if shared and suffix else {})
        domain: dict[str, Any] = {"domain": [max(0.0, 1 - bottom / total), top], "anchor": f"x{suffix}"}
        domain |= {
            "range": [panel.units, 0],
            "tickvals": [at.middle for at in panel.lanes],
            "ticktext": [at.title for at in panel.lanes],
        }
        named = axis(grid=False, fixedrange=True, ticks="", **domain)
        fig.update_layout({f"xaxis{suffix}": time, f"yaxis{suffix}": named})
        if panel.heading:
            text = {"text": f"<b>{soft(panel.heading, _HEADING)}</b>", "font": {"size": 11, "color": INK}}
            across = {"x": 0, "xref": "paper", "xanchor": "left", "xshift": -100}
            fig.add_annotation(**text, **across, y=top, yref="paper", yanchor="bottom", align="left", showarrow=False)
        for track in panel.lanes[1:]:
            across = {"x0": 0, "x1": 1, "xref": f"x{suffix} domain", "line": {"color": RULE, "width": 1}}
            fig.add_shape(type="line", layer="below", y0=track.top, y1=track.top, yref=f"y{suffix}", **across)
        for trace in [*_idle(panel), *(_heat(panel) if panel.heat else _bars(panel))]:
            group = trace.legendgroup
            trace.showlegend = bool(group) and group not in shown
            shown.add(group)
            fig.add_trace(trace.update(xaxis=f"x{suffix}", yaxis=f"y{suffix}"))
        bottom += foot
    return fig.update_layout(uniformtext={"mode": "hide", "minsize": 9})
