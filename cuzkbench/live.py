"""A run as it goes on, in a notebook: the rows that the recorder has written so far become a Gantt chart that grows.

Drawing happens on the thread that called `run`, while it polls: at most twice a second, never for more than a fiftieth
of its time, and of the latest MARKS marks only, so that the run does not wait for its picture. `charts.gantt` of the
log that comes back has all marks and says what the GPU waited for.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from cuzkbench.charts.palette import FONT, INK, PHASES, RULE, SOFT, WARN
from cuzkbench.events import Event, Phase
from cuzkbench.plan import RunPlan

MARKS = 1_200  # in one picture: 5 ms of Python, 320 kB
REDRAW_S = 0.5
IDLE_SHARE = 50  # waits this many times as long as the last drawing took
_LANES = {Phase.KERNEL: "GPU compute", Phase.H2D: "upload", Phase.D2H: "download", Phase.LOCK_HOLD: "GPU lock"}
_FEEDING = {Phase.SYNTHESIS: "synthesis", Phase.VERIFY: "verification"}
_FILL = {
    phase: f'fill="{paint.colour}" stroke="{paint.colour}" ' + ('fill-opacity=".3"' if paint.hatch else "")
    for phase, paint in PHASES.items()
}
_STYLE = f"""<style>
.cuzk-live {{ background: #fff; color: {INK}; font: 13px/1.5 {FONT}; padding: 8px }}
.cuzk-live svg {{ width: 100%; height: 24px; vertical-align: middle; stroke-width: 0.7px }}
.cuzk-live .lanes {{ display: grid; grid-template-columns: max-content 1fr; column-gap: 8px; padding: 6px 0 }}
.cuzk-live .lanes svg {{ border-top: 1px solid {RULE} }}
.cuzk-live p {{ display: flex; justify-content: space-between; margin: 0; border-top: 1px solid {SOFT} }}
.cuzk-live > span {{ margin-right: 14px; white-space: nowrap }}
</style>"""


class Mark(NamedTuple):
    """One bar: its row, and the lanes that show it."""

    event: Event
    lanes: list[str]


def in_notebook() -> bool:
    """Whether this process is a kernel with a front end that shows displays, as in JupyterLab; imports nothing."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return getattr(shell, "kernel", None) is not None


class Live:
    """The picture of one run; its methods are the callbacks that `prover.scheduler.run_plan` takes."""

    def __init__(self, plan: RunPlan) -> None:
        from IPython.display import display

        self.drawn = 0
        self._title = plan.preset or f"{plan.lock} lock, {plan.memory}, {plan.workers} workers"
        self._words = "getting ready"
        self._batches: deque[Sequence[Event]] = deque()  # filled by the log's writer thread
        self._marks: deque[Mark] = deque(maxlen=MARKS)
        self._seen = 0
        self._lanes: list[str] = []
        self._labels: list[str] = []
        self._several = plan.gpus > 1
        self._thread = threading.get_ident()
        self._next = 0.0
        self._handle = display(self._picture(), raw=True, display_id=True)

    def header(self, header: Mapping[str, Any]) -> None:
        """The log's header: its labels, and the lanes of its resolved plan, so that they keep their places."""
        plan = RunPlan.from_mapping(header["plan"])
        self._labels = list(header["labels"])
        lanes = []
        for gpu in range(plan.gpus):
            lanes += [self._named(gpu, words) for words in _LANES.values()]
            lanes += [self._named(gpu, f"worker {gpu * plan.workers + worker}") for worker in range(plan.workers)]
        self._lanes = [*lanes, *_FEEDING.values()]

    def events(self, batch: Sequence[Event]) -> None:
        """Rows that were written; kept until the next drawing."""
        self._batches.append(batch)

    def progress(self, what: str, done: int, total: int) -> None:
        """Say how far the run is and draw, if it is time and this is the run's main thread."""
        if threading.get_ident() != self._thread:
            return
        if what == "partitions":
            self._words = f"{done:,} of {total:,} partitions proved, warm-up counted"
        elif what != "synthesis":
            self._words = f"{what}: {done:,} of {total:,}"
        if time.perf_counter() >= self._next:
            self.draw()

    def end(self, words: str) -> None:
        """The last picture, which stays."""
        self._words = words
        self.draw()

    def draw(self) -> None:
        """Send the picture of now."""
        begin = time.perf_counter()
        while self._batches:
            for event in self._batches.popleft():
                self._add(event)
        self._handle.update(self._picture(), raw=True)
        self.drawn += 1
        end = time.perf_counter()
        self._next = end + max(REDRAW_S, IDLE_SHARE * (end - begin))

    def _named(self, gpu: int, words: str) -> str:
        return f"GPU {gpu} · {words.removeprefix('GPU ')}" if self._several else words

    def _add(self, event: Event) -> None:
        phase = Phase[event.phase]
        lanes = [self._named(event.gpu, _LANES[phase])] if phase in _LANES else []
        if event.worker >= 0 and phase not in (Phase.LOCK_HOLD, Phase.VERIFY):
            lanes.append(self._named(event.gpu, f"worker {event.worker}"))
        if phase in _FEEDING:
            lanes.append(_FEEDING[phase])
        if lanes and event.end_ns > event.start_ns:
            self._marks.append(Mark(event, lanes))
            self._seen += 1

    def _picture(self) -> dict[str, str]:
        """The display's data: lanes as SVG in HTML, which every front end redraws in place and keeps when saved.

        (plotly's own JupyterLab renderer draws an output once and ignores what follows.)
        """
        says = f"{self._words}." + (f" The latest {MARKS:,} of {self._seen:,} marks." if self._seen > MARKS else "")
        low = min((mark.event.start_ns for mark in self._marks), default=0)
        high = max((mark.event.end_ns for mark in self._marks), default=1_000_000_000)
        scale = 100 / (high - low)
        bars: dict[str, list[str]] = {lane: [] for lane in self._lanes}
        for event, lanes in self._marks:
            phase, warm = Phase[event.phase], ", warm-up" if event.warmup else ""
            told = f"{PHASES[phase].words} {escape(event.name)}, partition {event.partition}{warm}"
            place = f'x="{scale * (event.start_ns - low):.3f}%" width="{scale * (event.end_ns - event.start_ns):.3f}%"'
            bar = f'<rect {place} height="20" y="2" {_FILL[phase]}><title>{told}</title></rect>'
            for lane in lanes:
                bars[lane].append(bar)
        rows = [f"<div>{lane}</div><svg>{''.join(drawn)}</svg>" for lane, drawn in bars.items()]
        rows += [f"<div></div><p><span>{low / 1e9:.1f} s</span><span>{high / 1e9:.1f} s</span></p>"] if rows else []
        keys = "".join(
            f'<span><svg style="width:14px"><rect width="12" height="12" y="7" {_FILL[phase]}/></svg>'
            f"{paint.words}</span>"
            for phase, paint in PHASES.items()
            if any(mark.event.phase == phase for mark in self._marks)
        )
        head = f"<b>{escape(self._title)}</b> {escape(says)}"
        head += "".join(f'<br><b style="color:{WARN}">{escape(label)}</b>' for label in self._labels)
        page = f'<div class="cuzk-live">{_STYLE}<div>{head}</div><div class="lanes">{"".join(rows)}</div>{keys}</div>'
        return {"text/html": page, "text/plain": f"{self._title}: {says}"}
