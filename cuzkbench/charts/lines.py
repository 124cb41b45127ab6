"""Charts over time and over a knob: utilisation, cadence against ideal, cadence against link rate, predictions."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from cuzkbench.analysis.intervals import clip, overlap, union
from cuzkbench.analysis.metrics import metrics, partitions
from cuzkbench.analysis.replay import CannotReplay, beginning
from cuzkbench.analysis.stretches import course, stretches
from cuzkbench.analysis.whatif import apply
from cuzkbench.charts.lanes import each
from cuzkbench.charts.palette import INK, PHASES, RULE, SERIES, SOFT, axis, figure, level, mute, wrapped
from cuzkbench.charts.timeline import measured
from cuzkbench.events import Phase
from cuzkbench.logs.log import Log
from cuzkbench.stages import LOCKS
from cuzkbench.words import duration, percent, rate, rate_unit

POINTS = 400  # of a utilisation curve
SLIDING = 12  # windows that a curve's sliding window goes into the run
REPLAYED = 200  # partitions at most behind a what-if curve, whose points are replays
TOLERANCE = 0.05  # a prediction is good within this share of the measured cadence


def utilisation(log: Log) -> go.Figure:
    """Share of a sliding window in which kernels ran and in which data was uploaded, exact at each of its points."""
    first, last = measured(log)
    width = max(1, (last - first) // SLIDING)
    middle = np.linspace(first, last, POINTS).astype(np.int64)
    start, end = np.maximum(middle - width // 2, first), np.minimum(middle + width // 2, last)
    says = f"Each point is the exact share of the {duration(width)} around it."
    changes = stretches(log)
    for gpu, held in changes.groupby("gpu"):
        says += f" {f'GPU {gpu}' if len(log.gpus) > 1 else 'The GPU'} {course(held)}."
    title = f"{log.title}: when was the GPU busy"
    if changes.empty:
        return mute(figure(title, log.labels, "This log shows no kernels."))
    fig = figure(title, log.labels, says, height=240)
    for number, gpu in enumerate(log.gpus):
        mine = log.frame[log.frame["gpu"] == gpu]
        who = f"GPU {gpu}: " if len(log.gpus) > 1 else ""
        for phase, dash in ((Phase.KERNEL, "solid"), (Phase.H2D, "dot")):
            rows = mine[mine["phase"] == phase]
            if rows.empty:
                continue
            ran = union(rows["start_ns"], rows["end_ns"])
            share, whole = overlap(start, end, ran) / np.maximum(end - start, 1), clip(ran, first, last).measure
            colour = PHASES[phase].colour if len(log.gpus) == 1 else SERIES[number % len(SERIES)]
            name = f"{who}{'kernels' if phase is Phase.KERNEL else 'uploads'} {percent(whole / max(last - first, 1))}"
            line = {"color": colour, "width": 2.5 if phase is Phase.KERNEL else 1.5, "dash": dash}
            told = f"<b>{name.rsplit(' ', 1)[0]}</b> %{{y:.0%}} around %{{x:.3f}} s<extra></extra>"
            fig.add_trace(go.Scatter(x=middle / 1e9, y=share, name=name, mode="lines", line=line, hovertemplate=told))
        held = changes[changes["gpu"] == gpu]
        if len(held) > 1:
            ends, share = (
                held[["start_ns", "end_ns"]].to_numpy().ravel() / 1e9,
                np.repeat(held["kernel_utilisation"], 2),
            )
            fig.add_trace(level(ends, share, f"{who}mean of each stretch", color=INK, width=1))
    fig.update_yaxes(axis("share of the time", range=[-0.02, 1.04], tickformat=".0%", fixedrange=True))
    return fig.update_xaxes(axis("time since the start", ticksuffix=" s", range=[first / 1e9, last / 1e9]))


def cadence(log: Log) -> go.Figure:
    """The time between completions, one point a partition, with the run's cadence and its ideal as lines."""
    done = partitions(log)
    done = done[~done["warmup"] & done["completion_ns"].notna()].sort_values(["completion_ns", "partition"])
    fig = figure(f"{log.title}: how often is a partition done", log.labels, "Warm-up left out.", height=240)
    top = 0.0
    for number, row in enumerate(each(metrics(log))):
        mine = done[done["gpu"] == row.gpu]
        who = f"GPU {row.gpu}: " if len(log.gpus) > 1 else ""
        colour = INK if len(log.gpus) == 1 else SERIES[number % len(SERIES)]
        at, gap = mine["completion_ns"].to_numpy(np.int64)[1:] / 1e9, np.diff(mine["completion_ns"]) / 1e9
        if not len(at):
            continue
        told = "<b>%{y:.4g} s</b> before partition %{customdata} was done<extra></extra>"
        look = {"mode": "markers", "marker": {"color": colour, "size": 8 if len(at) < 200 else 4}}
        look |= {"customdata": mine["partition"].to_numpy()[1:], "hovertemplate": told}
        fig.add_trace(go.Scatter(x=at, y=gap, name=f"{who}time since the one before", **look))
        for value, words, dash in ((row.cadence_ns, "cadence", "solid"), (row.ideal_cadence_ns, "ideal", "dash")):
            if pd.notna(value):
                own = "#D55E00" if words == "cadence" else "#009E73"
                own, ends = own if len(log.gpus) == 1 else colour, [at[0], at[-1]]
                name = f"{who}{words} {duration(value)}"
                fig.add_trace(level(ends, [value / 1e9] * 2, name, color=own, width=2, dash=dash))
                top = max(top, value / 1e9)
        top = max(top, float(gap.max()))
    if not fig.data:
        return mute(figure(fig.layout.title.text[3:-4], log.labels, "This log names no two completed partitions."))
    fig.update_yaxes(axis("time a partition", ticksuffix=" s", range=[0, 1.1 * top], fixedrange=True))
    return fig.update_xaxes(axis("time since the start", ticksuffix=" s"))


def whatif(log: Log) -> go.Figure:
    """Cadence against the rate of every copy, by lock and number of workers, by replaying the log's own stages.

    The knee is the rate at which a partition's transfer takes as long as its kernels. A log that cannot be replayed
    gives a figure that says why.
    """
    title = f"{log.title}: what if the link were faster"
    try:
        run = beginning(log, REPLAYED)
    except CannotReplay as lack:
        return mute(figure(title, log.labels, f"This log cannot say: {lack}.", legend=False))
    done, uploads = partitions(log), log.frame[log.frame["phase"] == Phase.H2D]
    done = done[~done["warmup"]]
    if not done["h2d_bytes"].sum():
        return mute(figure(title, log.labels, "This log cannot say: it shows no uploads.", legend=False))
    knee = float(done["h2d_bytes"].sum() / max(done["kernel_ns"].sum(), 1))
    own = float(uploads["bytes"].sum() / max(union(uploads["start_ns"], uploads["end_ns"]).measure, 1))
    links = np.geomspace(min(knee / 6, own / 1.5), 8 * knee, 15)
    says = "All copies at one rate, other stages as in the log. Left of the knee transfer takes longer than compute."
    says += f" From the first {REPLAYED} partitions." if len(done) > REPLAYED else ""
    fig = figure(title, log.labels, says, height=300)
    two = max(2, run.shape.workers)
    policies = [("narrow", 1, "solid"), *((lock, two, "solid") for lock in LOCKS), ("narrow", two + 1, "dash")]
    colours = dict(zip(LOCKS, SERIES, strict=False))
    for lock, count, dash in policies:
        if count > 8:
            continue
        made = [run.run(*apply(run, lock=lock, workers=count, link_gb_s=link)[:2]).cadence_ns / 1e9 for link in links]
        name = f"{lock} lock, {count} workers" if count > 1 else "one worker"
        line = {"color": colours[lock], "dash": dash, "width": 2} if count > 1 else {"color": RULE, "width": 8}
        every = [f"at {rate(x)}<br>a partition every {duration(y * 1e9)}" for x, y in zip(links, made, strict=True)]
        told = [f"<b>{name}</b> {text}" for text in every]
        fig.add_trace(go.Scatter(x=links, y=made, name=name, mode="lines", line=line, hovertext=told, hoverinfo="text"))
    edge = [knee, knee], [0, max(fig.data[0].y)]
    fig.add_trace(level(*edge, f"knee at {rate(knee)}", color=SOFT, dash="dash", width=1))
    here = f"<b>this run</b><br>bus at {rate(own)}, a partition every {duration(run.measured.cadence_ns)}"
    at = {"x": [own], "y": [run.measured.cadence_ns / 1e9], "hovertext": here, "hoverinfo": "text"}
    look = {"mode": "markers", "marker": {"color": INK, "symbol": "diamond", "size": 10}}
    fig.add_trace(go.Scatter(**at, **look, name="this run"))
    scale, unit = rate_unit(links[-1])
    for trace in fig.data:
        trace.x = np.asarray(trace.x) * scale
    fig.update_yaxes(axis("time a partition", ticksuffix=" s", rangemode="tozero"))
    ticks = [float(f"{digit}e{power}") for power in range(-3, 6) for digit in (1, 2, 5)]
    seen = [tick for tick in ticks if links[0] * scale < tick < links[-1] * scale]
    return fig.update_xaxes(axis(f"rate of every copy, {unit}", type="log", tickvals=seen))


def predicted(table: pd.DataFrame, title: str = "What-if against what was measured") -> go.Figure:
    """How far each prediction is off: columns source, target, measured_ns, low_ns, middle_ns, high_ns."""
    near = (table["middle_ns"] / table["measured_ns"] - 1).abs() <= TOLERANCE
    says = f"{near.sum()} of {len(table)} predictions lie within {TOLERANCE:.0%} of what was measured."
    fig = figure(title, (), says, height=320)
    low, high = 0.8 * float(table["measured_ns"].min()), 1.25 * float(table["measured_ns"].max())
    band = {"x": [low, high, high, low], "y": [TOLERANCE, TOLERANCE, -TOLERANCE, -TOLERANCE]}
    look = {"fill": "toself", "fillcolor": RULE, "line": {"width": 0}, "hoverinfo": "skip"}
    fig.add_trace(go.Scatter(**band, **look, mode="lines", name=f"within {TOLERANCE:.0%}"))
    for good, name, colour, symbol in ((True, "met", "#0072B2", "circle"), (False, "missed", "#D55E00", "x")):
        rows = table[near == good]
        if rows.empty:
            continue
        told = [
            f"{wrapped(f'from {row.source} to {row.target}')}<br>predicted {duration(row.middle_ns)}"
            f" ({duration(row.low_ns)} to {duration(row.high_ns)}), measured {duration(row.measured_ns)}"
            for row in each(rows)
        ]
        spread = {"type": "data", "symmetric": False, "color": colour, "thickness": 1, "width": 3}
        spread["array"] = (rows["high_ns"] - rows["middle_ns"]) / rows["measured_ns"]
        spread["arrayminus"] = (rows["middle_ns"] - rows["low_ns"]) / rows["measured_ns"]
        marks = {"mode": "markers", "marker": {"color": colour, "symbol": symbol, "size": 8}, "error_y": spread}
        at = {"x": rows["measured_ns"], "y": rows["middle_ns"] / rows["measured_ns"] - 1}
        fig.add_trace(go.Scatter(name=name, **at, hovertext=told, hoverinfo="text", **marks))
    fig.update_yaxes(axis("prediction off by", tickformat="+.0%", zeroline=True, zerolinecolor=SOFT))
    seen = [tick for power in range(12) for tick in (10**power, 2 * 10**power, 5 * 10**power) if low < tick < high]
    times = {"tickvals": seen, "ticktext": [duration(tick) for tick in seen], "range": np.log10([low, high]).tolist()}
    return fig.update_xaxes(axis("measured cadence", type="log", **times))
