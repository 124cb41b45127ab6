"""Tables in a notebook: words by unit, the frame itself unchanged, whatever a log says escaped."""

from __future__ import annotations

import pandas as pd
import pytest

from cuzkbench.analysis import gaps, metrics, partitions, theories
from cuzkbench.analysis import metrics as shown_metrics
from cuzkbench.analysis.metrics import metrics as plain_metrics
from cuzkbench.analysis.shown import Shown, said
from cuzkbench.plan import RunPlan
from cuzkbench.simulate import simulate
from tests.handmade import MS, log, row

SLOW = simulate(RunPlan.named("seed-case", device="model", seed=1))


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("cadence_ns", 1_750_000_000, "1.75\u00a0s"),
        ("h2d_bytes", 16_700_000_000, "16.7\u00a0GB"),
        ("bytes", 131_000, "131\u00a0kB"),
        ("line_rate_gb_s", 55.2, "55.2\u00a0GB/s"),
        ("kernel_utilisation", 0.5068, "51%"),
        ("lock_utilisation", float("nan"), "–"),
        ("median_cadence_ns", pd.NA, "–"),
        ("worker", -1, "–"),
        ("partitions", 1000, "1,000"),
        ("warmup", True, "yes"),
        ("why", "a" * 300, "a" * 200 + "…"),
        ("evidence", [{"what": "kernel utilisation", "value": 0.4847, "unit": "share"}], "kernel utilisation 48%"),
        ("evidence", [{"what": "rate", "value": 3.1353, "unit": "GB/s"}], "rate 3.14\u00a0GB/s"),
        ("evidence", [], "–"),
    ],
)
def test_cell_vs_words(name, value, words):
    assert said(name, value) == words


def test_shown_frame_equals_the_plain_one_and_stays_shown():
    shown = shown_metrics(SLOW)
    assert isinstance(shown, Shown) and shown.equals(plain_metrics(SLOW))
    assert shown["cadence_ns"].iloc[0] == plain_metrics(SLOW)["cadence_ns"].iloc[0]
    assert isinstance(partitions(SLOW).query("not warmup"), Shown)
    assert not isinstance(plain_metrics(SLOW), Shown)


def test_each_table_says_times_in_words_and_explains_its_columns():
    for table in (metrics, partitions, gaps, theories):
        html = table(SLOW)._repr_html_()
        assert "\u00a0s</td>" in html
        assert html.count("<th title=") == len(table(SLOW).columns)
    assert '<th title="(last - first completion) / (partitions - 1)">cadence_ns</th>' in metrics(SLOW)._repr_html_()


def test_text_of_a_log_is_escaped():
    bad = "<img src=x onerror=alert(1)>"
    made = log(row("KERNEL", 0, 3, job=bad), row("KERNEL", 8, 9, 1, job=bad), scale=MS)
    for table in (partitions, gaps):
        html = table(made)._repr_html_()
        assert "<img" not in html and "&lt;img" in html


def test_long_tables_say_how_much_is_left_out():
    frame = Shown({"start_ns": range(1000)})
    html = frame._repr_html_()
    most = pd.get_option("display.max_rows") // 2
    assert html.count("<tr>") == most + 1 and f"and {1000 - most:,} more rows" in html


def test_index_with_names_is_shown():
    assert ">partition</th>" in partitions(SLOW).set_index(["job", "partition"])._repr_html_()
