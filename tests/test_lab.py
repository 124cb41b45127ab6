"""A run in a real JupyterLab in Chromium: its Gantt chart grows, the stop button keeps what is done, panels answer."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from cuzkbench import read
from tests.chromium import chromium, needs_chromium

pytestmark = needs_chromium
ROOT = Path(__file__).parents[1]
TOKEN = "of-this-test"
RUN = """\
import cuzkbench
plan = cuzkbench.RunPlan(device="host", log2_size=10, partitions=100_000, seed=1)
log = cuzkbench.run(plan, "stopped.parquet")"""
LOAD = """\
log = cuzkbench.read("stopped.parquet")
print("ended:", log.trailer["ended"], "complete:", log.complete)
log"""
PANEL = "cuzkbench.panel.whatif(log)"

# the highest partition that a bar of the picture belongs to
LATEST = """() => Math.max(...[...document.querySelectorAll('.cuzk-live title')]
    .map(title => Number(/partition (\\d+)/.exec(title.textContent)[1])))"""


def wait_for(ready: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, f"not ready after {seconds} s"
        time.sleep(0.2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("lab")
    cells = [nbformat.v4.new_code_cell(source) for source in (RUN, LOAD, PANEL)]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), made / "live.ipynb")
    return made


@pytest.fixture(scope="module")
def lab(folder: Path) -> Iterator[str]:
    """The address of a JupyterLab server that knows nothing of the user's settings."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = (
        "JUPYTER_CONFIG_DIR",
        "JUPYTER_RUNTIME_DIR",
        "JUPYTERLAB_SETTINGS_DIR",
        "JUPYTERLAB_WORKSPACES_DIR",
        "IPYTHONDIR",
    )
    env = os.environ | {name: str(folder / ".state" / name.lower()) for name in own}
    env |= {"PYTHONPATH": str(ROOT), "JUPYTER_PLATFORM_DIRS": "1"}
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--ServerApp.port={port}"]
    command += ["--ServerApp.ip=127.0.0.1", "--ServerApp.port_retries=0", f"--IdentityProvider.token={TOKEN}"]
    command += ["--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate", "--LabApp.news_url=None"]
    command += [f"--ServerApp.root_dir={folder}"]
    with (folder / "server.txt").open("w") as said:
        server = subprocess.Popen(command, cwd=folder, env=env, stdout=said, stderr=subprocess.STDOUT)

    def answers() -> bool:
        assert server.poll() is None, (folder / "server.txt").read_text()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api?token={TOKEN}", timeout=5) as reply:
                return reply.status == 200
        except OSError:
            return False

    try:
        wait_for(answers)
        yield f"http://127.0.0.1:{port}/lab/tree/live.ipynb?token={TOKEN}"
    finally:
        server.terminate()
        server.wait(30)


@pytest.fixture(scope="module")
def page(lab: str) -> Iterator[Any]:
    with chromium() as browser:
        opened = browser.new_page(viewport={"width": 1440, "height": 900})
        opened.goto(lab)
        opened.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=60_000)
        opened.get_by_text("Python 3 (ipykernel) | Idle").wait_for(timeout=60_000)
        yield opened


def press(page: Any, command: str) -> None:
    """A button of the notebook's toolbar."""
    page.locator(f".jp-NotebookPanel-toolbar [data-command='{command}']").first.click()


def run_cell(page: Any, number: int) -> Any:
    """Run a cell; returns its output area."""
    cell = page.locator(".jp-Notebook .jp-CodeCell").nth(number)
    cell.locator(".cm-content").click()
    press(page, "notebook:run-cell-and-select-next")
    return cell.locator(".jp-OutputArea")


def shoot(page: Any, name: str) -> None:
    """A picture into the folder CUZKBENCH_SCREENSHOTS, for looking at."""
    if "CUZKBENCH_SCREENSHOTS" in os.environ:
        page.screenshot(path=Path(os.environ["CUZKBENCH_SCREENSHOTS"]) / f"{name}.png")


def test_gantt_grows_and_stopping_the_kernel_keeps_what_is_done(page: Any, folder: Path) -> None:
    output = run_cell(page, 0)
    view = output.locator(".cuzk-live")
    view.locator("rect").first.wait_for(timeout=60_000)
    shoot(page, "growing")

    first = page.evaluate(LATEST)
    wait_for(lambda: page.evaluate(LATEST) > first + 2)
    assert view.count() == 1 and "emulated" in view.inner_text()
    press(page, "notebook:interrupt-kernel")
    output.get_by_text("cuzkbench.read('stopped.parquet')").first.wait_for(timeout=30_000)
    shoot(page, "stopped")
    log = read(folder / "stopped.parquet")
    assert log.complete and log.trailer is not None and log.trailer["ended"] == "interrupted"
    assert 2 <= log.trailer["proofs"]["made"] < 100_000

    output = run_cell(page, 1)
    output.get_by_text("ended: interrupted complete: True").wait_for(timeout=30_000)
    shown = output.locator(".jp-RenderedHTMLCommon")
    assert "kernel utilisation" in shown.inner_text() and "emulated" in shown.inner_text()
    shoot(page, "loaded")


def test_what_if_panel_answers_its_controls(page: Any) -> None:
    """Of the log that the test before loaded."""
    output = run_cell(page, 2)
    output.get_by_text("As it ran: a partition every").wait_for(timeout=30_000)
    output.get_by_role("button", name="coarse").click()
    output.get_by_text("With lock coarse: a partition every").wait_for(timeout=10_000)
    shoot(page, "panel")
    output.get_by_role("button", name="pageable").click()
    output.get_by_text("With lock coarse, memory pageable: this log cannot say.").wait_for(timeout=10_000)
