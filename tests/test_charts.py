"""Charts against the rows they draw: lengths, sums and places, on hand-made logs and on simulated runs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from cuzkbench import charts
from cuzkbench.analysis.gaps import gaps
from cuzkbench.analysis.metrics import metrics, partitions
from cuzkbench.charts import timeline
from cuzkbench.charts.lanes import marks, packed
from cuzkbench.charts.lines import SLIDING
from cuzkbench.charts.palette import CAUSES, PHASES
from cuzkbench.events import GapCause, Phase
from cuzkbench.logs.log import Log
from cuzkbench.plan import RunPlan
from cuzkbench.simulate import simulate
from tests import handmade
from tests.handmade import MS, row

ALONE = (
    charts.gantt,
    charts.utilisation,
    charts.cadence,
    charts.causes,
    charts.bandwidth,
    charts.theories,
    charts.whatif,
)


@pytest.fixture(scope="module")
def seed_case() -> Log:
    return simulate(RunPlan.named("seed-case", device="model"))


@pytest.fixture(scope="module")
def fixed() -> Log:
    return simulate(RunPlan.named("fixed", device="model"))


def by_hand(**columns: object) -> Log:
    """Two partitions of 20 ms kernels, 10 ms apart; the second one uploads 10 MB in 15 ms."""
    return handmade.log(
        row("H2D", 0, 10, 0, 0, bytes=10 * MS),
        row("LOCK_HOLD", 10, 30, 0, 0),
        row("KERNEL", 10, 30, 0, 0, **columns),
        row("FINISH", 30, 32, 0, 0),
        row("SYNTHESIS", 0, 20, 1),
        row("QUEUE", 20, 22, 1),
        row("PREP", 22, 25, 1, 1),
        row("H2D", 25, 40, 1, 1, bytes=10 * MS, memory="PAGEABLE"),
        row("LOCK_HOLD", 40, 60, 1, 1),
        row("KERNEL", 40, 60, 1, 1),
        row("FINISH", 60, 62, 1, 1),
        scale=MS,
        labels=["by hand, no proofs"],
    )


def bars(fig: go.Figure, group: str) -> Iterator[go.Bar]:
    return (trace for trace in fig.data if trace.type == "bar" and trace.legendgroup == group)


def length(traces: Iterator[go.Bar]) -> float:
    return float(sum(np.sum(trace.x) for trace in traces))


def test_gantt_bars_vs_rows_of_each_phase(seed_case):
    fig = charts.gantt(seed_case)
    frame = seed_case.frame[seed_case.frame["end_ns"] > seed_case.frame["start_ns"]]
    for phase in (Phase.KERNEL, Phase.H2D, Phase.PREP, Phase.FINISH):
        rows = frame[frame["phase"] == phase]
        twice = 2 if phase in (Phase.KERNEL, Phase.H2D) else 1  # in the lane of the resource and in the worker's
        drawn = list(bars(fig, phase))
        assert sum(len(trace.x) for trace in drawn) == twice * len(rows)
        assert length(iter(drawn)) == pytest.approx(twice * (rows["end_ns"] - rows["start_ns"]).sum() / 1e9)


def test_gantt_places_vs_the_rows_by_hand():
    fig = charts.gantt(by_hand())
    lanes = [title.split("<br>")[0] for title in fig.layout.yaxis.ticktext]
    assert lanes == ["GPU compute", "upload", "GPU lock", "worker 0", "worker 1", "synthesis"]
    kernels = next(bars(fig, Phase.KERNEL))
    at = dict(zip(fig.layout.yaxis.tickvals, lanes, strict=True))
    found = {
        (at[min(at, key=lambda tick: abs(tick - y))], base) for y, base in zip(kernels.y, kernels.base, strict=True)
    }
    assert found == {("GPU compute", 0.01), ("GPU compute", 0.04), ("worker 0", 0.01), ("worker 1", 0.04)}


def test_idle_shading_vs_gaps_and_metrics(seed_case):
    fig = charts.gantt(seed_case)
    idle = gaps(seed_case)
    for cause in GapCause:
        mine = idle[idle["cause"] == cause]
        long = mine["end_ns"] - mine["start_ns"]
        shaded = length(bars(fig, f"cause {cause}"))
        assert shaded <= long.sum() / 1e9 + 1e-9
        # shorter gaps than a pixel are left out, and only those
        width = (fig.layout.xaxis.range[1] - fig.layout.xaxis.range[0]) * timeline.UNSEEN
        assert shaded == pytest.approx(long[long > width * 1e9].sum() / 1e9)


def test_causes_end_to_end_vs_idle_of_metrics(seed_case):
    *parts, whole = charts.causes(seed_case).data
    idle = metrics(seed_case).iloc[0]["idle_ns"] / 1e9
    assert whole.x[0] == pytest.approx(idle, abs=1e-9)
    reach = 0.0
    for part in parts:  # each begins where the one before it ends
        assert part.base[0] == pytest.approx(reach, abs=1e-9)
        reach += part.x[0]
    assert reach == pytest.approx(idle, abs=1e-9)


def test_utilisation_vs_brute_force_by_hand():
    fig = charts.utilisation(by_hand())
    kernels = fig.data[0]
    window, grid = 50 / SLIDING, np.arange(0, 60, 0.001)
    busy = ((grid >= 10) & (grid < 30)) | ((grid >= 40) & (grid < 60))
    for at, share in zip(np.asarray(kernels.x)[::37] * 1e3, np.asarray(kernels.y)[::37], strict=True):
        inside = (grid >= max(at - window / 2, 10)) & (grid < min(at + window / 2, 60))
        assert share == pytest.approx(busy[inside].mean(), abs=2e-3)


def test_cadence_points_vs_differences_of_completions(fixed):
    fig = charts.cadence(fixed)
    done = partitions(fixed)
    ends = np.sort(done[~done["warmup"]]["completion_ns"].to_numpy(np.int64))
    np.testing.assert_allclose(fig.data[0].y, np.diff(ends) / 1e9)
    assert fig.data[1].y[0] == pytest.approx((ends[-1] - ends[0]) / (len(ends) - 1) / 1e9, abs=1e-9)


def test_bandwidth_bars_vs_bytes_over_time_by_hand():
    fig = charts.bandwidth(by_hand())
    found = {
        name.split("<br>")[0]: trace.x[0] for name, trace in zip(fig.layout.yaxis.ticktext, fig.data, strict=False)
    }
    assert found == {"upload, pageable": pytest.approx(10 / 15), "upload, pinned": pytest.approx(1.0)}


def test_knee_vs_closed_form(fixed):
    fig = charts.whatif(fixed)
    knee = next(trace for trace in fig.data if trace.name.startswith("knee"))
    done = partitions(fixed).query("not warmup")
    assert knee.x[0] == pytest.approx(done["h2d_bytes"].sum() / done["kernel_ns"].sum())
    narrow = next(trace for trace in fig.data if trace.name == "narrow lock, 2 workers")
    # far right of the knee two workers and a narrow lock run at kernel time; at a sixth of it at transfer time
    assert narrow.y[-1] == pytest.approx(done["kernel_ns"].mean() / 1e9, rel=0.02)
    assert narrow.y[0] > 0.9 * (done["h2d_bytes"].mean() / narrow.x[0] / 1e9)
    assert (np.diff(narrow.y) <= 1e-9).all()


def test_whatif_says_why_it_cannot():
    bare = handmade.log(row("KERNEL", 0, 10, -1, -1), row("KERNEL", 20, 30, -1, -1))
    fig = charts.whatif(bare)
    assert len(fig.data) == 0 and "This log cannot say" in fig.layout.title.subtitle.text


def test_compare_vs_gantt_on_one_axis(seed_case, fixed):
    fig = charts.compare([seed_case, fixed])
    assert fig.layout.xaxis2.matches == "x" and fig.layout.xaxis.range == fig.layout.xaxis2.range
    for axis, log in (("x", seed_case), ("x2", fixed)):
        kernels = [trace for trace in fig.data if trace.xaxis == axis and trace.legendgroup == Phase.KERNEL]
        starts = np.concatenate([trace.base for trace in kernels])
        one = metrics(log).iloc[0]
        assert starts.min() == pytest.approx(0.0)  # each from its first measured kernel
        ends = np.concatenate([np.add(trace.base, trace.x) for trace in kernels])
        assert ends.max() == pytest.approx(one["window_ns"] / 1e9)


def test_heatmap_vs_bars_beyond_the_exact_marks(seed_case, monkeypatch):
    monkeypatch.setattr(timeline, "EXACT_MARKS", 100)
    monkeypatch.setattr(timeline, "WINDOW_MARKS", 60)
    fig = charts.gantt(seed_case)
    heat = [trace for trace in fig.data if trace.type == "heatmap"]
    titles = dict(zip(fig.layout.yaxis.tickvals, fig.layout.yaxis.ticktext, strict=True))
    compute = next(trace for trace in heat if titles[sum(trace.y) / 2] == "GPU compute")
    low, high = (round(edge * 1e9) for edge in fig.layout.xaxis.range)
    rows = seed_case.frame[seed_case.frame["phase"] == Phase.KERNEL]
    inside = (rows["end_ns"].clip(low, high) - rows["start_ns"].clip(low, high)).sum()
    width = np.diff(np.asarray(compute.x))
    assert (np.asarray(compute.z[0]) * width).sum() * 1e9 == pytest.approx(inside, rel=1e-5)
    assert max(np.asarray(compute.z[0])) <= 1
    said = fig.layout.title.subtitle.text.replace("\n", " ")
    assert f"{len(marks(seed_case)):,} marks are merged" in said and "60 are drawn singly" in said
    singly = [
        trace for trace in fig.data if trace.type == "bar" and trace.yaxis == "y2" and trace.legendgroup in list(Phase)
    ]
    assert 0 < sum(len(trace.x) for trace in singly) <= 60


def test_five_thousand_marks_in_few_traces(monkeypatch):
    log = simulate(RunPlan.named("fixed", device="model", partitions=100))
    assert 4_000 < len(marks(log)) < 5_000
    fig = charts.gantt(log)
    assert len(fig.data) <= len(Phase) + 2 * len(GapCause) + 1
    assert not any(trace.type == "heatmap" for trace in fig.data)


def test_marks_of_a_lane_never_overlap_vs_every_pair(seed_case):
    rows = packed(marks(seed_case))
    for _, lane in rows.groupby(["key", "sub"]):
        ordered = lane.sort_values("start_ns")
        assert (ordered["start_ns"].to_numpy()[1:] >= ordered["end_ns"].to_numpy()[:-1]).all()


def test_window_keeps_what_touches_it():
    fig = charts.gantt(by_hand(), window=(0.03, 0.04))
    assert tuple(fig.layout.xaxis.range) == (0.03, 0.04)
    groups = {trace.legendgroup for trace in fig.data if trace.legendgroup}
    assert {group for group in groups if not group.startswith("cause")} == {"H2D", "FINISH"}


@pytest.mark.parametrize("chart", ALONE, ids=lambda chart: chart.__name__)
def test_labels_in_every_figure_and_no_dates(chart):
    fig = chart(by_hand())
    assert "by hand, no proofs" in fig.layout.title.subtitle.text
    for name in fig.layout:
        if name.startswith(("xaxis", "yaxis")):
            assert fig.layout[name].type in ("linear", "log")


@pytest.mark.parametrize("chart", ALONE, ids=lambda chart: chart.__name__)
def test_charts_of_a_log_without_kernels(chart):
    fig = chart(handmade.log(row("SYNTHESIS", 0, 10, 0), row("PREP", 10, 12, 0, 0)))
    assert isinstance(fig, go.Figure)


def test_names_from_logs_are_escaped():
    evil = '<a href="https://example.org">x</a>'
    log = by_hand(name=evil)
    shown = [text for trace in charts.gantt(log).data for text in np.atleast_1d(trace.hovertext) if text is not None]
    assert any("&lt;a href" in text for text in shown) and not any("<a" in text for text in shown)


def test_two_gpus_have_lanes_of_their_own():
    log = simulate(RunPlan.named("two-gpus", device="model"))
    titles = [title.split("<br>")[0] for title in charts.gantt(log).layout.yaxis.ticktext]
    assert [title for title in titles if "compute" in title] == ["GPU 0 · compute", "GPU 1 · compute"]
    assert sum("worker" in title for title in titles) == 4


def test_palette_has_every_phase_and_cause():
    assert set(PHASES) == set(Phase) and set(CAUSES) == set(GapCause)


# Machado, Oliveira and Fernandes 2009, severity 1: what a colour looks like without one kind of cone, linear RGB
BLINDNESS = {
    "none": np.eye(3),
    "protan": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deutan": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritan": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


def lab(colour: str, seen_by: np.ndarray) -> np.ndarray:
    channels = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    x, y, z = XYZ @ np.clip(seen_by @ linear, 0, 1) / np.array([0.95047, 1, 1.08883])
    fx, fy, fz = (value ** (1 / 3) if value > 216 / 24389 else (24389 / 27 * value + 16) / 116 for value in (x, y, z))
    return np.array([116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)])


@pytest.mark.parametrize("eyes", BLINDNESS)
def test_solid_colours_of_a_worker_lane_stay_apart_vs_machado(eyes):
    solid = [Phase.KERNEL, Phase.H2D, Phase.D2H, Phase.PREP, Phase.ALLOC, Phase.STAGE, Phase.FINISH]
    seen = {phase: lab(PHASES[phase].colour, BLINDNESS[eyes]) for phase in solid}
    for one, other in itertools.combinations(solid, 2):
        assert np.linalg.norm(seen[one] - seen[other]) > 16, (one, other)  # kernel and upload to tritan eyes: 17


@pytest.mark.parametrize("eyes", BLINDNESS)
def test_causes_stay_apart_by_colour_or_hatch_vs_machado(eyes):
    for one, other in itertools.combinations(GapCause, 2):
        apart = np.linalg.norm(lab(CAUSES[one].colour, BLINDNESS[eyes]) - lab(CAUSES[other].colour, BLINDNESS[eyes]))
        assert CAUSES[one].hatch != CAUSES[other].hatch or apart > 12, (one, other)


def test_predicted_counts_hits_by_hand():
    table = pd.DataFrame(
        [("a", "b", 2e9, 1.9e9, 2.05e9, 2.2e9), ("b", "c", 2e9, 2e9, 2.2e9, 2.4e9)],
        columns=["source", "target", "measured_ns", "low_ns", "middle_ns", "high_ns"],
    )
    fig = charts.predicted(table)
    assert "1 of 2" in fig.layout.title.subtitle.text
    assert [trace.name for trace in fig.data] == ["within 5%", "met", "missed"]
    assert fig.data[2].y == pytest.approx([0.1]) and fig.data[1].error_y.arrayminus == pytest.approx([0.075])


def test_a_share_is_called_all_or_none_only_where_it_is():
    """A cause of 2.28 of 2.281 s was called 100.0 %, beside three others of 0.0 %."""
    log = handmade.log(
        row("KERNEL", 0, 10, 0),
        row("H2D", 10, 5010, 1, bytes=10 * MS, memory="PAGEABLE"),
        row("KERNEL", 5011, 5020, 1),
    )
    said = " ".join(charts.causes(log).layout.yaxis.ticktext)
    assert "over 99.9%" in said and "under 0.1%" in said and "100.0%" not in said and " 0.0%" not in said


def test_a_partitions_name_stands_in_the_longest_piece_of_its_bars():
    """A name in the middle of two uploads of one partition stood white on the white between them."""
    log = handmade.log(
        row("KERNEL", 0, 100, 0, 0),
        row("H2D", 10, 50, 1, 1, bytes=10 * MS),
        row("H2D", 70, 100, 1, 1, bytes=10 * MS),
        row("KERNEL", 100, 200, 1, 1),
    )
    names = next(trace for trace in charts.gantt(log).data if trace.text)
    uploads = [one for one in zip(names.base, names.x, strict=True) if one[1] < 90e-9]
    assert uploads and all(one == pytest.approx((10e-9, 40e-9)) for one in uploads)
