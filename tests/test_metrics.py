"""Metrics of hand-made logs: each answer is worked out in the comment beside it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from cuzkbench.analysis import all_operations, bandwidth, jobs, metrics, partitions
from cuzkbench.logs.log import Log
from tests import handmade
from tests.handmade import MS, row


def two_workers(**changes: object) -> Log:
    """One warm-up and three partitions; times in ms.

    worker 0: p0 (warm-up) H2D 0-10, kernel 10-20; p2 queue -25, prep 25-30, H2D 30-40, kernel 42-52, finish 52-55
    worker 1: p1 prep 2-6, H2D 12-22, wait 22-24, hold 24-34, kernel 24-34, finish 34-36
              p3 prep 36-38, H2D 38-48, kernel 60-70, finish 70-74
    """
    return handmade.log(
        row("H2D", 0, 10, 0, 0, bytes=MS, memory="PAGEABLE", warmup=True),
        row("KERNEL", 10, 20, 0, 0, warmup=True),
        row("FINISH", 20, 25, 0, 0, warmup=True),
        row("SYNTHESIS", 0, 2, 1),
        row("PREP", 2, 6, 1, 1),
        row("H2D", 12, 22, 1, 1, bytes=20 * MS, memory="PAGEABLE"),
        row("LOCK_WAIT", 22, 24, 1, 1),
        row("LOCK_HOLD", 24, 34, 1, 1),
        row("KERNEL", 24, 34, 1, 1),
        row("FINISH", 34, 36, 1, 1),
        row("SYNTHESIS", 2, 8, 2),
        row("QUEUE", 8, 25, 2),
        row("PREP", 25, 30, 2, 0),
        row("H2D", 30, 40, 2, 0, bytes=40 * MS),
        row("LOCK_HOLD", 42, 52, 2, 0),
        row("KERNEL", 42, 52, 2, 0),
        row("FINISH", 52, 55, 2, 0),
        row("SYNTHESIS", 8, 18, 3),
        row("PREP", 36, 38, 3, 1),
        row("H2D", 38, 48, 3, 1, bytes=10 * MS),
        row("LOCK_HOLD", 60, 70, 3, 1),
        row("KERNEL", 60, 70, 3, 1),
        row("FINISH", 70, 74, 3, 1),
        scale=MS,
        **changes,
    )


def test_utilisation_and_transfer_of_two_workers():
    one = metrics(two_workers()).iloc[0]
    # W: first kernel that is no warm-up 24, last kernel 70
    assert (one["window_start_ns"], one["window_end_ns"], one["window_ns"]) == (24 * MS, 70 * MS, 46 * MS)
    # busy 24-34, 42-52, 60-70; gaps 34-42 and 52-60
    assert (one["kernel_busy_ns"], one["idle_ns"], one["idle_gaps"]) == (30 * MS, 16 * MS, 2)
    assert one["kernel_utilisation"] == 30 / 46
    # holds 30 of 24..70
    assert one["lock_utilisation"] == 30 / 46
    # worker lives: p0 0-25 (warm-up, busy inside), p1 2-36, p2 25-55, p3 36-74: all of 2..74
    assert one["worker_utilisation"] == 1.0
    # copies in W: 30-48; under a kernel: 30-34 and 42-48
    assert one["hidden_transfer"] == 10 / 18
    # by another worker: 30-34 (copy of 0, kernel of 1) and 42-48 (copy of 1, kernel of 0): the same here
    assert one["interleaving"] == 10 / 18


def test_cadence_is_a_mean_with_median_and_quartiles_beside_it():
    one = metrics(two_workers()).iloc[0]
    # completions 36, 55, 74 (warm-up at 25 left out): steps 19, 19
    assert (one["partitions"], one["cadence_ns"], one["median_cadence_ns"]) == (3, 19 * MS, 19 * MS)
    uneven = metrics(handmade.log(*(row("KERNEL", at, at + 1, p) for p, at in enumerate((0, 10, 12, 30, 40))))).iloc[0]
    # completions 1, 11, 13, 31, 41: steps 10, 2, 18, 10; mean 10, sorted 2 10 10 18
    assert uneven[["cadence_ns", "median_cadence_ns", "cadence_q1_ns", "cadence_q3_ns"]].tolist() == [10, 10, 8, 12]


def test_ideal_cadence_is_the_slowest_resource():
    plan = {"workers": 2, "synthesis_workers": 1}
    # kernel 10 ms; transfer (20+40+10)/3 MB at 1 byte/ns = 23.3 ms; synthesis (2+6+10)/3 = 6 ms;
    # own time: prep 11, finish 9, uncovered copies 70 at line rate: 90/3/2 = 15 ms
    one = metrics(two_workers(plan=plan)).iloc[0]
    assert one["ideal_cadence_ns"] == round(70 / 3 * MS)
    assert one["efficiency"] == round(70 / 3 * MS) / (19 * MS)
    # at 10 GB/s: transfer 2.33 ms, own time (20 + 7)/6 = 4.5 ms: kernels decide
    assert metrics(two_workers(plan=plan), line_rate=10.0).iloc[0]["ideal_cadence_ns"] == 10 * MS
    # one worker with slow synthesis: 18/3 = 6 under 27/3 = 9 under 10; three GPUs' worth of waiting does not count
    slow = two_workers(plan=plan | {"workers": 1})
    # downloads have their own lane: of 50 bytes up and 60 down the busier 60 count, not 110
    both = [row("H2D", 0, 50, bytes=50, worker=-1), row("D2H", 60, 120, bytes=60, worker=-1), row("KERNEL", 50, 60)]
    assert metrics(handmade.log(*both)).iloc[0]["ideal_cadence_ns"] == 60
    assert metrics(slow, line_rate=1.75).iloc[0]["ideal_cadence_ns"] == 20 * MS  # (20 + 40)/3/1


def test_synthesis_workers_feed_all_gpus():
    # 90 ns of synthesis each, three workers: a partition every 30 ns, which two GPUs share: 60 for each
    rows = [row("SYNTHESIS", 0, 90, p) for p in range(2)] + [row("KERNEL", 90, 100, p, p, gpu=p) for p in range(2)]
    assert metrics(handmade.log(*rows, plan={"synthesis_workers": 3}))["ideal_cadence_ns"].tolist() == [60, 60]
    # without a plan as many as were seen at once: two
    assert metrics(handmade.log(*rows))["ideal_cadence_ns"].tolist() == [90, 90]


def test_a_lock_over_everything_leaves_only_prep_and_finish_to_the_worker():
    rows = [
        row("LOCK_HOLD", 0, 100, 0),
        row("PREP", 0, 10, 0),
        row("ALLOC", 10, 20, 0),
        row("STAGE", 20, 40, 0),
        row("H2D", 20, 60, 0, bytes=40),
        row("KERNEL", 60, 65, 0),
        row("FINISH", 65, 95, 0),
    ]
    # covered: own time 10 + 30 = 40 equals the transfer of 40 bytes
    assert metrics(handmade.log(*rows)).iloc[0]["ideal_cadence_ns"] == 40
    # uncovered: 10 + 30 + 10 (ALLOC) + 20 (STAGE) + 40 (H2D)
    assert metrics(handmade.log(*rows[1:])).iloc[0]["ideal_cadence_ns"] == 110
    # hold ends at 40: half of the copy is uncovered, 40 bytes take 40 ns: 10 + 30 + 20
    half = row("LOCK_HOLD", 0, 40, 0)
    assert metrics(handmade.log(half, *rows[1:])).iloc[0]["ideal_cadence_ns"] == 60


def test_partitions_hold_each_times_and_where_they_ran():
    frame = partitions(two_workers())
    assert frame["partition"].tolist() == [0, 1, 2, 3]
    assert frame["worker"].tolist() == [0, 1, 0, 1] and frame["gpu"].tolist() == [0, 0, 0, 0]
    assert frame["warmup"].tolist() == [True, False, False, False]
    # pick-up: the queue's end where there is one, else the first step on a worker
    assert (frame["pickup_ns"] // MS).tolist() == [0, 2, 25, 36]
    assert (frame["completion_ns"] // MS).tolist() == [25, 36, 55, 74]
    # prove_start: pick-up to the end of the kernels
    assert (frame["prove_start_ns"] // MS).tolist() == [20, 32, 27, 34]
    two = frame.iloc[2]
    assert [two[name] // MS for name in ("synthesis_ns", "prep_ns", "h2d_ns", "kernel_ns", "finish_ns")] == [
        6,
        5,
        10,
        10,
        3,
    ]
    assert two["h2d_bytes"] == 40 * MS and two["lock_hold_ns"] == 10 * MS and two["lock_wait_ns"] == 0
    assert (two["kernel_first_ns"], two["kernel_last_ns"]) == (42 * MS, 52 * MS)


def test_a_stated_prove_start_is_taken_as_stated():
    rows = [row("PREP", 0, 5), row("KERNEL", 5, 9), row("COUNTER", 9, 9, name="prove_start_ms", value=4.5)]
    assert partitions(handmade.log(*rows))["prove_start_ns"].tolist() == [4_500_000]
    for absurd in (1e300, -5.0):
        rows[-1] = row("COUNTER", 9, 9, name="prove_start_ms", value=absurd)
        assert partitions(handmade.log(*rows))["prove_start_ns"].tolist() == [9]


def test_overlapping_kernels_of_two_streams_count_once():
    log = handmade.log(row("KERNEL", 0, 10, 0, stream=1), row("KERNEL", 5, 15, 0, stream=2))
    assert partitions(log)["kernel_ns"].tolist() == [15]
    assert metrics(log).iloc[0][["kernel_busy_ns", "kernel_utilisation"]].tolist() == [15, 1.0]


def test_without_finish_the_last_kernel_completes_but_not_in_a_log_that_broke_off():
    rows = [row("KERNEL", 0, 10, 0), row("FINISH", 10, 12, 0), row("KERNEL", 10, 20, 1)]
    whole = handmade.log(*rows)
    assert partitions(whole)["completion_ns"].tolist() == [12, 20]
    cut = Log(whole.frame, whole.header, None, "line 4")
    assert partitions(cut)["completion_ns"].tolist() == [12, pd.NA]
    assert metrics(cut).iloc[0]["partitions"] == 1


def test_warm_up_is_busy_inside_the_window_and_nowhere_else():
    rows = [row("KERNEL", 0, 10, 0), row("KERNEL", 12, 15, 1, warmup=True), row("KERNEL", 20, 30, 2)]
    one = metrics(handmade.log(*rows, row("KERNEL", 40, 50, 3, warmup=True))).iloc[0]
    # W 0..30, busy 10 + 3 + 10
    assert (one["window_ns"], one["kernel_busy_ns"], one["partitions"], one["cadence_ns"]) == (30, 23, 2, 20)


def test_gpus_are_never_merged():
    rows = [
        row("KERNEL", 0, 10, 0),
        row("KERNEL", 20, 30, 0),
        row("H2D", 0, 10, 1, 1, gpu=1),
        row("KERNEL", 10, 20, 1, 1, gpu=1),
    ]
    frame = metrics(handmade.log(*rows))
    # GPU 0 is idle 10-20 though GPU 1 computes; GPU 1's copy lies outside of its own window
    assert frame["gpu"].tolist() == [0, 1]
    assert frame["idle_ns"].tolist() == [10, 0] and frame["kernel_utilisation"].tolist() == [20 / 30, 1.0]
    assert frame["hidden_transfer"].isna().all()


def test_interleaving_needs_another_worker():
    rows = [row("H2D", 0, 10, 1, 0), row("KERNEL", 0, 20, 0, 0), row("KERNEL", 5, 7, 2, 1), row("KERNEL", 8, 30, 3, -1)]
    one = metrics(handmade.log(*rows, device_kind="foreign")).iloc[0]
    # hidden wholly, behind another worker's kernel only 5-7; an unknown worker is no other worker
    assert (one["hidden_transfer"], one["interleaving"]) == (1.0, 0.2)


def test_a_part_of_the_run_is_measured_by_itself():
    one = metrics(two_workers(), start_ns=30 * MS, end_ns=60 * MS).iloc[0]
    # W 30..60: busy 30-34, 42-52; only p1 and p2 complete inside (36 and 55)
    assert (one["window_ns"], one["kernel_busy_ns"], one["partitions"], one["cadence_ns"]) == (
        30 * MS,
        14 * MS,
        2,
        19 * MS,
    )
    assert jobs(two_workers(), end_ns=60 * MS)["partitions"].tolist() == [2]


def test_bandwidth_by_direction_and_memory_with_warm_up_left_out():
    frame = bandwidth(two_workers())
    # pageable 20 MB in 10 ms; pinned 40 + 10 MB in 20 ms
    assert frame[["direction", "memory", "gb_s"]].values.tolist() == [["H2D", "PAGEABLE", 2.0], ["H2D", "PINNED", 2.5]]
    assert frame["line_rate_gb_s"].tolist() == [1.0, 1.0] and set(frame["line_rate_source"]) == {"header"}


def rate(idle: float | None, loaded: float | None) -> dict:
    return {"H2D": {"idle": idle, "loaded": loaded}, "D2H": {"idle": None, "loaded": None}}


@pytest.mark.parametrize(
    ("changes", "argument", "expected"),
    [
        ({"line_rate_gb_s": rate(55.0, 38.0), "plan": {"cpu_load": 14}}, None, (38.0, "header")),
        ({"line_rate_gb_s": rate(55.0, 38.0), "plan": {"cpu_load": 0}}, None, (55.0, "header")),
        ({"line_rate_gb_s": rate(55.0, None), "plan": {"cpu_load": 14}}, None, (55.0, "header")),
        ({"line_rate_gb_s": rate(55.0, 38.0)}, 7.0, (7.0, "argument")),
        ({"line_rate_gb_s": None}, None, (25.0, "fastest pinned copy")),
    ],
)
def test_line_rate_comes_from_argument_header_or_the_fastest_pinned_copy(changes, argument, expected):
    mib = 1 << 20
    rows = [
        row("H2D", 0, mib // 10, 0, bytes=mib),
        row("H2D", mib, mib + mib // 25, 0, bytes=mib // 25 * 25),  # a trace of 25 GB/s, too small to tell by a hair
        row("H2D", 2 * mib, 2 * mib + 2 * mib // 25, 0, bytes=2 * mib // 25 * 25),
        row("H2D", 4 * mib, 4 * mib + 1, 0, bytes=900),  # 900 GB/s of latency
        row("H2D", 5 * mib, 5 * mib + mib // 64, 0, bytes=mib, memory="UNKNOWN"),
    ]
    found = bandwidth(handmade.log(*rows, **changes), argument).iloc[0]
    assert (found["line_rate_gb_s"], found["line_rate_source"]) == expected


def test_without_pinned_copies_the_line_rate_is_assumed_and_says_so():
    found = bandwidth(handmade.log(row("H2D", 0, 10, bytes=1 << 30, memory="PAGEABLE"), line_rate_gb_s=None)).iloc[0]
    assert (found["line_rate_gb_s"], found["line_rate_source"]) == (50.0, "assumed")
    with pytest.raises(ValueError, match="line rate 1e-300"):
        bandwidth(handmade.log(row("H2D", 0, 10, bytes=1, memory="PAGEABLE")), line_rate=1e-300)
    with pytest.raises(ValueError, match="line rate 0"):
        bandwidth(two_workers(), 0.0)


def test_jobs_have_their_own_wall_time():
    rows = [row("SYNTHESIS", 0, 5, 0), row("KERNEL", 10, 20, 0), row("KERNEL", 20, 36, 1)]
    other = [row("KERNEL", 40, 50, 0, job="k"), row("VERIFY", 50, 90, 0, job="k", name="accepted")]
    frame = jobs(handmade.log(*rows, *other, scale=10**9))
    assert frame["job"].tolist() == ["j", "k"] and frame["partitions"].tolist() == [2, 1]
    assert frame["wall_ns"].tolist() == [36 * 10**9, 10 * 10**9]
    assert frame["proofs_per_hour"].tolist() == [100.0, 360.0]


def test_all_operations_span_every_kind():
    rows = [
        row("H2D", 0, 10, memory="PAGEABLE", warmup=True),
        row("KERNEL", 5, 15),
        row("MEMSET", 20, 22),
        row("D2D", 22, 25),
        row("D2H", 30, 40),
        row("KERNEL", 35, 37),
        row("HOST_SYNC", 0, 99),
    ]
    one = all_operations(handmade.log(*rows)).iloc[0].to_dict()
    # busy 0-15, 20-25, 30-40
    assert one == {
        "gpu": 0,
        "span_ns": 40,
        "kernels": 2,
        "copies": 3,
        "memsets": 1,
        "kernel_union_ns": 12,
        "copy_union_ns": 23,
        "overlap_ns": 7,
        "busy_ns": 30,
        "idle_ns": 10,
        "idle_gaps": 2,
        "pageable_copy_union_ns": 10,
    }


def test_a_gpu_without_kernels_has_no_utilisation_and_a_log_without_gpu_no_row():
    one = metrics(handmade.log(row("H2D", 0, 10), row("LOCK_HOLD", 0, 10))).iloc[0]
    assert (one["window_ns"], one["kernel_utilisation"], one["idle_ns"], one["partitions"]) == (0, 0.0, 0, 0)
    assert np.isnan([one["cadence_ns"], one["ideal_cadence_ns"], one["efficiency"], one["hidden_transfer"]]).all()
    assert len(metrics(handmade.log(row("SYNTHESIS", 0, 10)))) == 0


def test_row_order_changes_nothing():
    log = two_workers()
    shuffled = Log(log.frame.sample(frac=1, random_state=7), log.header, log.trailer)
    for analysis in (metrics, partitions, bandwidth, jobs, all_operations):
        pd.testing.assert_frame_equal(analysis(shuffled), analysis(log))


def test_the_frame_is_left_alone():
    log = two_workers()
    before = log.frame.copy()
    for analysis in (metrics, partitions, bandwidth, jobs, all_operations):
        analysis(log)
    pd.testing.assert_frame_equal(log.frame, before)


def test_a_log_shows_itself_escaped():
    html = two_workers(labels=["<b>emulated</b>"], gpus=[{"gpu": 0, "device": "<script>"}])._repr_html_()
    assert "<script>" not in html and "&lt;script&gt;" in html and "&lt;b&gt;emulated" in html
    assert "65% of" in html and "3 and 1 warm-up" in html
