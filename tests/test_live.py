"""The picture of a run that goes on: every row drawn once, at a bounded cost; stopping keeps what was finished."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

import cuzkbench
from cuzkbench import live, read, runs
from cuzkbench.events import Event
from cuzkbench.plan import RunPlan
from cuzkbench.prover.scheduler import RunInterrupted
from tests.handmade import header

SMALL = RunPlan(device="host", log2_size=8, partitions=4, seed=1)
PUBLIC = ("run", "read", "RunPlan", "RunPlan.named", "Log", "Log.save", "analysis.metrics", "analysis.gaps")
PUBLIC += ("analysis.theories", "analysis.whatif", "charts.gantt", "charts.compare", "panel.whatif")


class Screen:
    """In place of a front end: the pictures it was sent."""

    def __init__(self) -> None:
        self.sent: list[dict[str, str]] = []

    def update(self, data: dict[str, str], raw: bool) -> None:
        self.sent.append(data)


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    made = Screen()
    monkeypatch.setattr("IPython.display.display", lambda data, **_: made.sent.append(data) or made)
    return made


def opened(**changes: Any) -> live.Live:
    plan = RunPlan(device="host", **changes)
    view = live.Live(plan)
    view.header(header(plan=plan.as_mapping(), labels=["<i>emulated</i>"]))
    return view


def kernel(partition: int, start_ns: int, name: str = "ntt.a") -> Event:
    return Event("r", "j", partition, 0, 0, "KERNEL", "COMPUTE", name, start_ns, start_ns + 5)


def test_bars_vs_rows_of_the_record(screen: Screen) -> None:
    """A kernel is drawn in the GPU's lane and in its worker's, a counter and an empty row nowhere."""
    view = opened()
    counter = Event("r", "", -1, 0, -1, "COUNTER", "CPU", "queue", 7, 7, 1.0)
    view.events([kernel(1, 0), kernel(1, 5), counter, Event("r", "j", 1, 0, 0, "LOCK_HOLD", "LOCK", "lock", 0, 10)])
    view.events([Event("r", "j", 2, -1, -1, "SYNTHESIS", "CPU", "synthesis", 3, 9)])
    view.end("done")
    lanes = dict(re.findall(r"<div>([^<]+)</div><svg>(.*?)</svg>", screen.sent[-1]["text/html"]))
    bars = {lane: drawn.count("<rect") for lane, drawn in lanes.items() if drawn}
    assert bars == {"GPU compute": 2, "GPU lock": 1, "worker 0": 2, "synthesis": 1}
    assert list(lanes)[-3:] == ["worker 1", "synthesis", "verification"]


def test_text_of_a_run_is_escaped_and_its_labels_are_shown(screen: Screen) -> None:
    view = opened()
    view.events([kernel(0, 0, "<script>")])
    view.end("<b>")
    html = screen.sent[-1]["text/html"]
    assert "<script>" not in html and "&lt;script&gt;" in html
    assert "&lt;i&gt;emulated" in html and "&lt;b&gt;" in html


def test_lanes_of_two_gpus_are_told_apart(screen: Screen) -> None:
    view = opened(gpus=2)
    view.events([kernel(0, 0)._replace(gpu=1, worker=2)])
    view.end("done")
    lanes = dict(re.findall(r"<div>([^<]+)</div><svg>(.*?)</svg>", screen.sent[-1]["text/html"]))
    assert [lane for lane, drawn in lanes.items() if drawn] == ["GPU 1 · compute", "GPU 1 · worker 2"]


def test_drawing_takes_a_bounded_share_of_the_time(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawings of 40 ms each, polled every 100 ms for 100 s: at most a fiftieth of the time."""
    now = [0.0]
    monkeypatch.setattr(live.time, "perf_counter", lambda: now[0])
    view = opened()
    picture = view._picture

    def slow() -> dict[str, str]:
        now[0] += 0.04
        return picture()

    monkeypatch.setattr(view, "_picture", slow)
    while now[0] < 100:
        now[0] += 0.1
        view.progress("partitions", 1, 2)
    assert 40 <= view.drawn <= 100 * (1 / live.IDLE_SHARE) / 0.04


def test_only_the_latest_marks_are_drawn_and_it_says_so(screen: Screen) -> None:
    view = opened()
    view.events([kernel(partition, 10 * partition) for partition in range(2 * live.MARKS)])
    view.draw()
    html = screen.sent[-1]["text/html"]
    assert f"The latest {live.MARKS:,} of {2 * live.MARKS:,} marks." in html
    assert f"partition {2 * live.MARKS - 1}<" in html and "partition 0<" not in html


def test_other_threads_never_draw(screen: Screen) -> None:
    view = opened()
    thread = threading.Thread(target=view.progress, args=("partitions", 1, 2))
    thread.start()
    thread.join()
    assert view.drawn == 0
    view.progress("partitions", 1, 2)
    assert view.drawn == 1


def test_outside_of_a_notebook_nothing_is_drawn(screen: Screen) -> None:
    assert not live.in_notebook()
    assert len(runs.run(SMALL, live=True).frame) and screen.sent == []


def test_live_view_of_a_kernel_vs_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(cuzkbench.__file__).parents[1]))
    source = f"import cuzkbench\nlog = cuzkbench.run(cuzkbench.RunPlan(**{SMALL.as_mapping()}), 'log.parquet')"
    quiet = "cuzkbench.run(cuzkbench.RunPlan(device='host', log2_size=8, partitions=1), live=False);"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in (source, quiet)])
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    (shown,) = notebook.cells[0].outputs
    assert notebook.cells[1].outputs == []
    lanes = dict(re.findall(r"<div>([^<]+)</div><svg>(.*?)</svg>", shown["data"]["text/html"]))
    log = read(tmp_path / "log.parquet")
    for lane, phase in (("GPU compute", "KERNEL"), ("GPU lock", "LOCK_HOLD"), ("synthesis", "SYNTHESIS")):
        assert lanes[lane].count("<rect") == (log.frame["phase"] == phase).sum()
    assert f"done, {len(log.frame):,} rows" in shown["data"]["text/html"]


def test_an_interrupted_run_without_a_path_keeps_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its temporary folder was removed although the message named the log in it."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def interrupt(stage: str, done: int, total: int) -> None:
        if stage == "partitions" and done >= 2:
            raise KeyboardInterrupt

    with pytest.raises(RunInterrupted) as stopped:
        runs.run(SMALL.replace(partitions=100_000), progress=interrupt)
    log = read(stopped.value.path)
    assert stopped.value.path.is_relative_to(tmp_path) and str(stopped.value.path) in str(stopped.value)
    assert log.trailer is not None and log.trailer["ended"] == "interrupted" and log.trailer["proofs"]["made"] >= 2
    assert "ended" in log._repr_html_() and "interrupted" in log._repr_html_()
    assert stopped.value._render_traceback_() == [
        f"Interrupted. What was finished: cuzkbench.read({str(stopped.value.path)!r})"
    ]


def test_a_finished_run_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert runs.run(SMALL).path is None
    assert list(tmp_path.iterdir()) == []


def test_help_in_a_notebook_shows_signature_and_docstring(tmp_path: Path) -> None:
    """What JupyterLab's inspector is sent, for each public name, without running anything."""
    code = f"""
from IPython.core.interactiveshell import InteractiveShell
import cuzkbench
shell = InteractiveShell()
shell.push({{"cuzkbench": cuzkbench}})
for name in {PUBLIC!r}:
    text = shell.object_inspect_mime("cuzkbench." + name)["text/plain"]
    print(name, "Docstring:" in text, "<no docstring>" not in text, "ignature:" in text)
"""
    env = {"IPYTHONDIR": str(tmp_path), "PYTHONPATH": str(Path(cuzkbench.__file__).parents[1]), "NO_COLOR": "1"}
    said = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    said = re.sub(r"\x1b\[[0-9;]*m", "", said)
    assert said.split("\n")[:-1] == [f"{name} True True True" for name in PUBLIC]
