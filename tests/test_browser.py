"""The report in a real Chromium with the network off: drawn, quiet, readable on a phone, and its logs come back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from cuzkbench import read, report
from cuzkbench.analysis.gaps import gaps
from cuzkbench.analysis.whatif import best_change, whatif
from cuzkbench.charts.palette import CAUSES
from cuzkbench.events import GapCause
from cuzkbench.glossary import TERMS
from cuzkbench.logs.log import Log
from cuzkbench.plan import RunPlan
from cuzkbench.simulate import simulate
from cuzkbench.words import duration
from tests.chromium import WIDTHS, Seen, chromium, needs_chromium, visit

pytestmark = needs_chromium


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
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module", params=WIDTHS)
def seen(request: pytest.FixtureRequest, browser: Any, path: Path) -> Iterator[Seen]:
    with visit(browser, path, WIDTHS[request.param]) as found:
        yield found


@pytest.fixture
def desk(browser: Any, path: Path) -> Iterator[Seen]:
    with visit(browser, path, WIDTHS["desk"]) as found:
        yield found


def test_quiet_offline_drawn_and_no_text_cut_or_overlapping(seen):
    assert not any(seen.faults().values()), seen.faults()
    assert seen.page.locator("figure.chart").count() >= 12


def test_faults_are_seen(desk):
    desk.page.evaluate("""() => {
        const wide = document.createElement('div');
        Object.assign(wide, { textContent: 'wide', style: 'width: 3000px' });
        document.querySelector('main').append(wide);
        delete document.querySelector('figure.chart').dataset.drawn;
        const [one, other] = document.querySelectorAll('.ytick text');
        other.setAttribute('y', one.getAttribute('y'));
        other.removeAttribute('transform');
        one.removeAttribute('transform');
        console.error('said');
    }""")
    found = desk.faults()
    assert found["errors"] == ["said"] and "wide" in found["cut"] and found["wider than the page"] > 1000
    assert found["not drawn"] == 1 and found["overlapping"]


def test_lanes_keep_their_height_on_a_phone(browser, path):
    heights = {}
    for name, size in WIDTHS.items():
        with visit(browser, path, size) as found:
            heights[name] = found.page.evaluate("document.querySelector('.plot')._fullLayout._size.h")
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


def test_whatif_controls_vs_whatif_of_that_change(desk, runs):
    form = desk.page.locator("form.whatif").first
    answer = form.locator("[data-cell]:visible")
    assert answer.count() == 1 and duration(best_change(runs[0])["predicted_cadence_ns"]) in answer.inner_text()
    form.locator("input[name^=memory][value=pageable]").check()
    form.locator("input[name^=lock]:checked").focus()
    desk.page.keyboard.press("ArrowLeft")  # from narrow to device
    form.locator("input[name^=workers][value='3']").check()
    found = whatif(runs[0], lock="device", memory="pageable", workers=3)["predicted"]
    low, middle, high = map(duration, found["cadence_ns"])
    assert answer.count() == 1
    assert f"{middle} a partition ({low} to {high})" in answer.inner_text()
    assert "cuzkbench whatif seed-case.parquet --lock device --memory pageable --workers 3" in answer.inner_text()
    form.locator("input[name^=memory][value=staged]").check()
    assert "The log cannot say" in answer.inner_text()


def test_a_term_says_its_meaning_on_focus(desk):
    desk.page.locator("abbr", has_text="cadence").first.focus()
    told = desk.page.evaluate("getComputedStyle(document.activeElement, '::after').content")
    assert told == f'"{TERMS["cadence"]}"'


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
    with visit(browser, tmp_path / "many.html", WIDTHS["desk"]) as found:
        assert not any(found.faults().values()), found.faults()
        assert found.page.locator("figure.chart .heatmaplayer image").count() > 4
        assert "marks are merged" in found.page.locator("figure.chart").first.text_content()
