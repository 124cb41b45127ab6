"""The report in a real Chromium with the network off: drawn, quiet, readable on a phone, and its logs come back."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from cuzkbench import read, report
from cuzkbench.analysis.gaps import gaps
from cuzkbench.charts.palette import CAUSES
from cuzkbench.events import GapCause
from cuzkbench.logs.log import Log
from cuzkbench.plan import RunPlan
from cuzkbench.simulate import simulate

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (pip install playwright)")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on PATH")
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
WIDTHS = {"desk": (1440, 900), "phone": (390, 844)}


@dataclass
class Seen:
    """A page and what it did."""

    page: Any
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def runs() -> list[Log]:
    return [simulate(RunPlan.named(preset, device="model", seed=5)) for preset in ("seed-case", "fixed")]


@pytest.fixture(scope="module")
def path(runs: list[Log], tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("browser") / "report.html"
    report.write(runs, file)
    return file


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as tool:
        opened = tool.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


def visit(browser: Any, path: Path, width: int, height: int) -> Seen:
    context = browser.new_context(viewport={"width": width, "height": height}, offline=True, accept_downloads=True)
    seen = Seen(context.new_page())
    seen.page.on("console", lambda message: seen.errors.append(message.text) if message.type == "error" else None)
    seen.page.on("pageerror", lambda error: seen.errors.append(str(error)))
    seen.page.on("request", lambda request: seen.requests.append(request.url))
    seen.page.goto(path.as_uri())
    seen.page.wait_for_selector("body[data-ready]", timeout=60_000)
    return seen


@pytest.fixture(scope="module", params=WIDTHS)
def seen(request: pytest.FixtureRequest, browser: Any, path: Path) -> Iterator[Seen]:
    found = visit(browser, path, *WIDTHS[request.param])
    yield found
    found.page.context.close()


@pytest.fixture
def desk(browser: Any, path: Path) -> Iterator[Seen]:
    found = visit(browser, path, *WIDTHS["desk"])
    yield found
    found.page.context.close()


def test_no_request_leaves_and_no_error_is_said(seen):
    assert seen.errors == []
    assert [url for url in seen.requests if not url.startswith(("file:", "data:", "blob:"))] == []


def test_every_figure_is_drawn(seen):
    figures = seen.page.locator("figure.chart").count()
    assert figures >= 12
    assert (
        seen.page.locator("figure.chart[data-drawn] .main-svg .plot, figure.chart[data-drawn] .infolayer").count()
        >= figures
    )


def test_nothing_is_wider_than_the_page(seen):
    assert seen.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    cut = seen.page.evaluate(
        """() => [...document.querySelectorAll('figure.chart')].flatMap(figure => {
            const box = figure.querySelector('.plot').getBoundingClientRect();
            return [...figure.querySelectorAll('svg text')].filter(text => {
                const own = text.getBoundingClientRect();
                const outside = own.left < box.left - 1 || own.right > box.right + 1 || own.top < box.top - 1;
                return own.width && outside && !text.closest('.barlayer');
            }).map(text => text.textContent);
        })"""
    )
    assert cut == []


def test_no_text_of_a_chart_lies_on_another(seen):
    clashes = seen.page.evaluate(
        """() => [...document.querySelectorAll('figure.chart')].flatMap(figure => {
            const chosen = '.xtick text, .ytick text, .g-gtitle text, .g-xtitle text, .legendtext, .annotation text';
            const boxes = [...figure.querySelectorAll(chosen)]
                .map(text => [text.textContent, text.getBoundingClientRect()]).filter(([, box]) => box.width);
            return boxes.flatMap(([one, a], at) => boxes.slice(at + 1).filter(([, b]) =>
                a.left < b.right - 2 && b.left < a.right - 2 && a.top < b.bottom - 3 && b.top < a.bottom - 3
            ).map(([other]) => one + ' | ' + other));
        })"""
    )
    assert clashes == []


def test_lanes_keep_their_height_on_a_phone(browser, path):
    heights = {}
    for name, size in WIDTHS.items():
        found = visit(browser, path, *size)
        heights[name] = found.page.evaluate("document.querySelector('.plot')._fullLayout._size.h")
        found.page.context.close()
    assert heights["phone"] > 0.9 * heights["desk"]


def test_click_on_a_gap_says_why_it_is_there(desk, runs):
    idle = gaps(runs[0])
    longest = idle.loc[(idle["end_ns"] - idle["start_ns"]).idxmax()]
    words = CAUSES[GapCause[longest["cause"]]].words
    place = desk.page.evaluate(
        """words => {
            const plot = document.querySelector('.plot'), full = plot._fullLayout, box = plot.getBoundingClientRect();
            const trace = plot._fullData.find(one => one.name === 'GPU waits for ' + words);
            let at = 0;
            trace.x.forEach((length, k) => { if (length > trace.x[at]) at = k; });
            const x = full.xaxis.l2p(trace.base[at] + trace.x[at] / 2) + full._size.l;
            return [box.left + x, box.top + full.yaxis.l2p(trace.y[at]) + full.yaxis._offset];
        }""",
        words,
    )
    desk.page.mouse.move(*place)
    desk.page.mouse.click(*place)
    said = desk.page.locator("figure.chart .said").first
    said.wait_for(state="visible")
    assert words in said.inner_text() and GapCause[longest["cause"]].meaning in said.inner_text()


def test_embedded_log_downloads_equal(desk, runs, tmp_path):
    for log, name in zip(runs, ("seed-case.parquet", "fixed.parquet"), strict=True):
        with desk.page.expect_download() as waiting:
            desk.page.click(f'a[data-file="{name}"]')
        assert waiting.value.suggested_filename == name
        waiting.value.save_as(tmp_path / name)
        pd.testing.assert_frame_equal(read(tmp_path / name).frame, log.frame)


def test_keyboard_zooms_moves_and_resets(desk):
    plot = desk.page.locator(".plot").first
    plot.focus()

    def span() -> list[float]:
        return desk.page.evaluate("document.querySelector('.plot')._fullLayout.xaxis.range.slice()")

    low, high = span()
    desk.page.keyboard.press("+")
    assert span()[1] - span()[0] == pytest.approx((high - low) / 2)
    before = span()
    desk.page.keyboard.press("ArrowRight")
    assert span()[0] == pytest.approx(before[0] + (before[1] - before[0]) / 5)
    desk.page.keyboard.press("Home")
    assert span() == pytest.approx([low, high])


def test_data_of_a_chart_opens_by_keyboard_vs_its_marks(desk):
    figure = desk.page.locator("figure.chart").first
    figure.locator("summary").focus()
    desk.page.keyboard.press("Enter")
    rows = figure.locator("details.data tbody tr")
    rows.first.wait_for(state="visible")
    marks = desk.page.evaluate(
        """document.querySelector('.plot')._fullData.filter(one => one.hoverinfo !== 'skip' && one.type === 'bar')
            .reduce((sum, one) => sum + one.x.length, 0)"""
    )
    assert rows.count() == min(marks, 2000)


def test_a_heatmap_of_many_marks_is_drawn(browser, tmp_path):
    log = simulate(RunPlan.named("fixed", device="model", partitions=300))
    report.write([log], tmp_path / "many.html")
    found = visit(browser, tmp_path / "many.html", *WIDTHS["desk"])
    assert found.errors == []
    assert found.page.locator("figure.chart .heatmaplayer image").count() > 4
    assert "marks are merged" in found.page.locator("figure.chart").first.text_content()
    found.page.context.close()
