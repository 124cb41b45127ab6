"""What-if with controls that work in a file: every answer is in the page, the controls choose which one is shown."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from IPython.display import HTML

from cuzkbench.analysis.replay import CannotReplay
from cuzkbench.analysis.whatif import best_change, grid
from cuzkbench.charts.palette import PHASES
from cuzkbench.events import Phase
from cuzkbench.logs.log import Log
from cuzkbench.words import duration, percent

_COVERS = {"coarse": "everything", "device": "transfers and kernels", "narrow": "kernels only"}
_ASKED = {"lock": "GPU lock", "memory": "memory", "workers": "workers"}
_LANES = (Phase.KERNEL, Phase.H2D)
_WIDE, _HIGH = 1000, 10  # of a strip's own units


def whatif(log: Log, name: str, number: int = 0) -> HTML:
    """Controls for lock, memory and workers of one log, called `name` in commands; it begins with the best change."""
    try:
        cells = grid(log)
    except CannotReplay as lack:
        return HTML(
            f'<div class="whatif"><h3>{escape(log.title)}</h3><p>This log cannot say: {escape(str(lack))}.</p></div>'
        )
    own = next((cell for cell in cells if cell["own"]), None)
    best = best_change(log)
    start = (own or cells[0])["changes"] | (best["changes"] if best else {})
    asked = ""
    for knob, words in _ASKED.items():
        options = ""
        for value in dict.fromkeys(cell["changes"][knob] for cell in cells):
            said = f"{value}: {_COVERS[value]}" if knob == "lock" else str(value)
            said += " (as run)" if own and own["changes"][knob] == value else ""
            picked = " checked" if start[knob] == value else ""
            button = f'<input type="radio" name="{knob}-{number}" value="{value}"{picked}>'
            options += f"<label>{button} {escape(said)}</label>"
        asked += f"<fieldset><legend>{words}</legend>{options}</fieldset>"
    answers = ""
    for cell in cells:
        key, hidden = " ".join(map(str, cell["changes"].values())), "" if cell["changes"] == start else " hidden"
        answers += f'<div data-cell="{key}"{hidden}>{_answer(cell, own, name)}</div>'
    return HTML(
        f'<form class="whatif"><h3>{escape(log.title)}</h3><div class="asked">{asked}</div>'
        f'<div class="answer" aria-live="polite">{answers}</div></form>'
    )


def _answer(cell: Mapping[str, Any], own: Mapping[str, Any] | None, name: str) -> str:
    if not cell["supported"]:
        return f"<p>The log cannot say: {escape(cell['why'])}.</p>"
    measured, (low, cadence, high) = cell["measured_cadence_ns"], cell["predicted"]["cadence_ns"]
    gain = 1 - cadence / measured
    change = "about as it ran" if abs(gain) < 0.01 else f"{abs(gain):.0%} {'less' if gain > 0 else 'more'}"
    change = "as it ran" if cell["own"] else change
    busy, start = (cell["predicted"][key][1] for key in ("kernel_utilisation", "prove_start_ms"))
    text = f"<p><b>{duration(cadence)}</b> a partition ({duration(low)} to {duration(high)}), measured"
    text += f" {duration(measured)}: {change}. Kernels run {percent(busy)} of the time,"
    text += f" prove_start {duration(start * 1e6)}.</p>"
    strips = [("then", cell)] if cell["own"] or not own else [("this run", own), ("then", cell)]
    limit = max(end for _, shown in strips for lane in shown["lanes"].values() for _, end in lane)
    rows = "".join(_strip("this run" if shown is own else who, shown["lanes"], limit) for who, shown in strips)
    changes = [word for knob, value in cell["changes"].items() for word in (f"--{knob}", str(value))]
    command = escape(shlex.join(["cuzkbench", "whatif", name, *changes]))
    rests = f"Kernels above, uploads below; {escape(cell['why'])}."
    return (
        f'{text}<div class="strips">{rows}</div><p class="soft">{rests} The same in a shell: <code>{command}</code></p>'
    )


def _strip(who: str, lanes: Mapping[str, Sequence[tuple[int, int]]], limit: int) -> str:
    """Compute above, uploads below, from the first measured kernel on."""
    paths = ""
    for place, phase in enumerate(_LANES):
        seen = ((max(0, start), end) for start, end in lanes[phase] if end > 0)
        bars = (
            f"M{_WIDE * start / limit:.1f} {place * (_HIGH + 2)}h{_WIDE * (end - start) / limit:.1f}v{_HIGH}"
            f"H{_WIDE * start / limit:.1f}z"
            for start, end in seen
        )
        paths += f'<path fill="{PHASES[phase].colour}" d="{"".join(bars)}"/>'
    box = f'viewBox="0 0 {_WIDE} {2 * _HIGH + 2}" preserveAspectRatio="none"'
    told = f"{who}: kernels above, uploads below, {duration(limit)} from the first measured kernel on"
    return f'<span>{who}</span><svg {box} role="img" aria-label="{escape(told)}">{paths}</svg>'
