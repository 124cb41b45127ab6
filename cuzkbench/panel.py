"""A what-if panel for notebooks: controls for lock, memory, workers and link rate, answered by replaying the log.

The answers are those of `analysis.whatif`, from the log's first FIRST partitions, so that each takes about 0.1 s.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import ipywidgets as widgets

from cuzkbench.analysis.replay import CannotReplay, Replay, beginning
from cuzkbench.analysis.whatif import whatif as predict
from cuzkbench.charts.palette import FONT, INK, SERIES, SOFT, WARN
from cuzkbench.logs.log import Log
from cuzkbench.stages import LOCKS, MEMORIES
from cuzkbench.words import duration, percent, rate

FIRST = 40  # partitions at most behind an answer: 31 replays of 50 µs a partition each
_LINKS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # of the line rate


def whatif(log: Log) -> widgets.DOMWidget:
    """Controls that start at the log's own policies, and under them what a change would give, with an interval.

    A log that cannot be replayed gives a line that says why.
    """
    try:
        run = beginning(log, FIRST)
    except CannotReplay as lack:
        return widgets.HTML(f"<b>{escape(log.title)}</b>: no what-if, {escape(str(lack))}.")
    controls = _controls(run)
    own = {name: control.value for name, control in controls.items()}
    answer = widgets.HTML()

    def redraw(_: object = None) -> None:
        changes = {name: control.value for name, control in controls.items() if control.value != own[name]}
        answer.value = _said(log, run, predict(log, most=FIRST, **changes))

    for control in controls.values():
        control.observe(redraw, "value")
    redraw()
    return widgets.VBox([*(_labelled(control) for control in controls.values()), answer])


def _labelled(control: Any) -> widgets.Widget:
    """Buttons with their label before them, as sliders have theirs; JupyterLab would put it above."""
    if not isinstance(control, widgets.ToggleButtons):
        return control
    label = widgets.Label(control.description, layout=widgets.Layout(width="9em", justify_content="flex-end"))
    control.description = ""
    return widgets.HBox([label, control])


def _controls(run: Replay) -> dict[str, Any]:
    style = {"description_width": "9em"}
    wide = widgets.Layout(width="34em", max_width="100%")  # on a phone the value beside a slider stays seen
    line = run.rate.gb_s
    links = [("as logged", 0.0)] + [(f"{rate(share * line)} ({share:g}× line rate)", share * line) for share in _LINKS]
    chosen = {"style": style | {"button_width": "7em"}, "layout": widgets.Layout(width="auto")}
    slid = {"style": style, "layout": wide, "continuous_update": False}
    most = max(8, 2 * run.shape.synthesis_workers)
    return {
        "lock": widgets.ToggleButtons(options=list(LOCKS), value=run.lock, description="GPU lock", **chosen),
        "memory": widgets.ToggleButtons(options=list(MEMORIES), value=run.memory, description="memory", **chosen),
        "workers": widgets.IntSlider(run.shape.workers, 1, 8, description="workers a GPU", **slid),
        "synthesis_workers": widgets.IntSlider(
            run.shape.synthesis_workers, 1, most, description="synthesis workers", **slid
        ),
        "link_gb_s": widgets.SelectionSlider(options=links, value=0.0, description="every copy at", **slid),
    }


def _said(log: Log, run: Replay, answer: Mapping[str, Any]) -> str:
    """The answer as HTML: one sentence, a bar for the measured cadence and one for the predicted, what it rests on."""
    changes = {name: rate(value) if name == "link_gb_s" else value for name, value in answer["changes"].items()}
    asked = ", ".join(f"{name.replace('_', ' ').replace(' gb s', '')} {value}" for name, value in changes.items())
    measured, found = answer["measured_cadence_ns"], answer["predicted"]
    bars = [("measured", SOFT, (measured, measured, measured), run.measured.utilisation)]
    if found is None:
        head = f"With {asked}: this log cannot say."
    else:
        low, middle, high = found["cadence_ns"]
        less = f"{percent(abs(1 - middle / measured))} {'less' if middle < measured else 'more'} than measured"
        head = f"{f'With {asked}' if asked else 'As it ran'}: a partition every {duration(middle)}"
        head += f" ({duration(low)} to {duration(high)}), {less}."
        bars.append(("predicted", SERIES[0], (low, middle, high), found["kernel_utilisation"][1]))
    longest = max(times[2] for _, _, times, _ in bars)
    drawn = "".join(_bar(name, colour, times, busy, longest) for name, colour, times, busy in bars)
    notes = "".join(f"<br><b style='color:{WARN}'>{escape(label)}</b>" for label in log.labels)
    return (
        f'<div style="font:13px/1.6 {FONT};color:{INK};background:#fff;padding:8px;max-width:56em">'
        f"<b>{escape(head)}</b>"
        f"{drawn}<span style='color:{SOFT}'>{escape(answer['why'])}</span>{notes}</div>"
    )


def _bar(name: str, colour: str, times: tuple[float, float, float], busy: float, longest: float) -> str:
    """A bar to the low end of the interval, paler from there to its high end."""
    low, high = (100 * ns / longest for ns in (times[0], times[2]))
    tail = f"<i style='width:{high - low:.2f}%;background:{colour};opacity:.4'></i>"
    words = f"{duration(times[1])}, kernel utilisation {percent(busy)}"
    return (
        f"<div>{name}, {words}</div><div style='display:flex;height:14px'>"
        f"<i style='width:{low:.2f}%;background:{colour}'></i>{tail}</div>"
    )
