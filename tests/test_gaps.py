"""Gap attribution: hand-made logs for every cause, and random logs against the rules applied instant by instant.

The hand-made logs are in ms. One worker's kernel ends at 10, the next begins later; the line rate is 1 byte a ns,
so a copy of n ms at line rate has n * MS bytes.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuzkbench.analysis import metrics
from cuzkbench.analysis.gaps import MERGE_NS, gaps
from cuzkbench.events import GapCause, Phase
from cuzkbench.logs.log import Log
from tests import handmade
from tests.handmade import MS, row

FIRST = (row("SYNTHESIS", 0, 1, 0), row("KERNEL", 5, 10, 0, 0))  # partition 0 on worker 0 ends its kernel at 10


def caused(*rows: dict, **changes: object) -> list[tuple[float, float, str]]:
    """Start and end in ms with the cause, of a log in ms; neighbours of one cause joined."""
    frame = gaps(handmade.log(*rows, scale=MS, **changes))
    assert not frame["why"].isna().any()
    found: list[tuple[float, float, str]] = []
    for r in frame.itertuples():
        start = r.start_ns / MS
        if found and found[-1][1:] == (start, r.cause):
            start = found.pop()[0]
        found.append((start, r.end_ns / MS, r.cause))
    return found


def test_waiting_for_a_pool_buffer_then_not_yet_synthesised():
    # partition 1: buffer 2-14 (first rule), synthesis 14-18, picked up at once, kernel 18
    wait = row("ALLOC", 2, 14, 1, -1, gpu=-1)
    assert caused(*FIRST, wait, row("SYNTHESIS", 14, 18, 1), row("KERNEL", 18, 20, 1, 1)) == [
        (10, 14, "ALLOCATION"),
        (14, 18, "SYNTHESIS_STARVED"),
    ]


def test_not_begun_is_not_yet_synthesised():
    # synthesis 14-18 without a wait before it: until 18 the partition is not synthesised
    assert caused(*FIRST, row("SYNTHESIS", 14, 18, 1), row("KERNEL", 18, 20, 1, 1)) == [(10, 18, "SYNTHESIS_STARVED")]


def test_a_ready_partition_whose_worker_finishes_another_then_dawdles():
    # partition 1 is ready at 4; its worker 0 finishes partition 0 until 14 and picks up at 16, kernel at 16
    rows = [row("FINISH", 10, 14, 0, 0), row("SYNTHESIS", 1, 4, 1), row("QUEUE", 4, 16, 1), row("KERNEL", 16, 20, 1, 0)]
    assert caused(*FIRST, *rows) == [(10, 14, "CPU_FINISH"), (14, 16, "WORKERS_BUSY")]


def test_the_finish_of_another_worker_is_no_reason():
    rows = [row("FINISH", 10, 14, 0, 1), row("SYNTHESIS", 1, 4, 1), row("QUEUE", 4, 16, 1), row("KERNEL", 16, 20, 1, 0)]
    assert caused(*FIRST, *rows) == [(10, 16, "WORKERS_BUSY")]


def test_the_finish_of_an_unknown_worker_is_no_reason():
    rows = [
        row("FINISH", 10, 14, 0, -1),
        row("SYNTHESIS", 1, 4, 1),
        row("QUEUE", 4, 16, 1),
        row("KERNEL", 16, 20, 1, -1),
    ]
    assert caused(*FIRST, *rows) == [(10, 16, "WORKERS_BUSY")]


def test_without_rows_of_synthesis_only_a_worker_that_is_seen_busy_counts():
    # partition 1 has no SYNTHESIS and no QUEUE; its worker finishes until 13, downloads until 15; then nobody knows
    rows = [
        row("FINISH", 10, 13, 0, 0),
        row("D2H", 13, 15, 0, 0),
        row("PREP", 18, 20, 1, 0),
        row("KERNEL", 20, 25, 1, 0),
    ]
    assert caused(row("KERNEL", 5, 10, 0, 0), *rows) == [
        (10, 13, "CPU_FINISH"),
        (13, 15, "WORKERS_BUSY"),
        (15, 18, "UNATTRIBUTED"),
        (18, 20, "CPU_PREP"),
    ]


def test_the_lock_held_over_cpu_work():
    # worker 1 waits 8-30 while partition 0 holds the lock over ALLOC 10-14, FINISH 14-20, nothing 20-24, PREP 24-30
    rows = [
        row("LOCK_HOLD", 5, 30, 0, 0),
        row("ALLOC", 10, 14, 0, 0),
        row("FINISH", 14, 20, 0, 0),
        row("PREP", 24, 30, 0, 0),
    ]
    waits = [row("LOCK_WAIT", 8, 30, 1, 1), row("LOCK_HOLD", 30, 35, 1, 1), row("KERNEL", 30, 35, 1, 1)]
    assert caused(*FIRST, *rows, *waits) == [(10, 20, "LOCKED_CPU"), (20, 24, "LOCKED_OTHER"), (24, 30, "LOCKED_CPU")]


def test_the_lock_held_over_a_copy_until_and_beyond_line_rate():
    # partition 2 holds 10-22 over an upload 11-21 of 6 ms at line rate: fair until 17
    holder = [row("LOCK_HOLD", 10, 22, 2, 0), row("H2D", 11, 21, 2, 0, bytes=6 * MS, memory="PAGEABLE")]
    waits = [row("LOCK_WAIT", 9, 22, 1, 1), row("KERNEL", 22, 25, 1, 1)]
    assert caused(*FIRST, *holder, *waits) == [
        (10, 11, "LOCKED_OTHER"),
        (11, 17, "LOCKED_TRANSFER"),
        (17, 21, "LOCKED_SLOW_TRANSFER"),
        (21, 22, "LOCKED_OTHER"),
    ]


def test_the_lock_held_over_a_download_uses_that_directions_rate():
    rate = {"H2D": {"idle": 1.0, "loaded": None}, "D2H": {"idle": 2.0, "loaded": None}}
    holder = [row("LOCK_HOLD", 10, 20, 0, 0), row("D2H", 10, 20, 0, 0, bytes=6 * MS)]  # fair for 3 ms
    waits = [row("LOCK_WAIT", 9, 20, 1, 1), row("KERNEL", 20, 25, 1, 1)]
    assert caused(*FIRST, *holder, *waits, line_rate_gb_s=rate) == [
        (10, 13, "LOCKED_TRANSFER"),
        (13, 20, "LOCKED_SLOW_TRANSFER"),
    ]


def test_a_wait_without_a_holder_and_of_two_holders_the_one_that_ends_last():
    # nobody holds 10-12; 12-20 partition 2 over PREP, 12-16 partition 3 over nothing: 2 ends last
    holders = [row("LOCK_HOLD", 12, 20, 2, 0), row("PREP", 12, 20, 2, 0), row("LOCK_HOLD", 12, 16, 3, 0)]
    waits = [row("LOCK_WAIT", 9, 20, 1, 1), row("KERNEL", 20, 25, 1, 1)]
    assert caused(*FIRST, *holders, *waits) == [(10, 12, "LOCKED_OTHER"), (12, 20, "LOCKED_CPU")]


def test_inside_the_own_hold_the_wait_would_have_been_saved_at_the_end():
    # partition 1 waited 4-10 (6 ms), then holds over PREP 10-14, STAGE 14-16, H2D 16-26 of 4 ms, kernel 26.
    # Without the lock everything was over at 26 - 6 = 20: before it plain causes, after it the lock's
    # upload: fair until 20, so after 20 it is slow
    rows = [
        row("LOCK_WAIT", 4, 10, 1, 1),
        row("LOCK_HOLD", 10, 30, 1, 1),
        row("PREP", 10, 14, 1, 1),
        row("STAGE", 14, 16, 1, 1),
        row("H2D", 16, 26, 1, 1, bytes=4 * MS, memory="PAGEABLE"),
        row("KERNEL", 26, 30, 1, 1),
    ]
    assert caused(*FIRST, *rows) == [
        (10, 14, "CPU_PREP"),
        (14, 16, "STAGING"),
        (16, 20, "TRANSFER"),
        (20, 26, "LOCKED_SLOW_TRANSFER"),
    ]
    # waited 13 ms: over at 13
    longer = [row("LOCK_WAIT", -3, 10, 1, 1), *rows[1:]]
    assert caused(*FIRST, *longer) == [
        (10, 13, "CPU_PREP"),
        (13, 16, "LOCKED_CPU"),
        (16, 20, "LOCKED_TRANSFER"),
        (20, 26, "LOCKED_SLOW_TRANSFER"),
    ]
    # no wait: the lock cost nothing
    assert {cause for _, _, cause in caused(*FIRST, *rows[1:])} == {"CPU_PREP", "STAGING", "TRANSFER", "SLOW_TRANSFER"}


def test_only_the_wait_for_this_hold_counts():
    # two holds: waited 2 ms for the first (0-2), 3 ms for the second (12-15), which covers PREP 15-20, kernel 20
    rows = [
        row("LOCK_WAIT", 0, 2, 1, 1),
        row("LOCK_HOLD", 2, 4, 1, 1),
        row("LOCK_WAIT", 12, 15, 1, 1),
        row("LOCK_HOLD", 15, 25, 1, 1),
        row("PREP", 15, 20, 1, 1),
        row("KERNEL", 20, 25, 1, 1),
    ]
    found = caused(row("KERNEL", 5, 12, 0, 0), *rows)
    assert found == [(12, 15, "LOCKED_OTHER"), (15, 17, "CPU_PREP"), (17, 20, "LOCKED_CPU")]


def test_the_moment_is_counted_from_the_end_of_the_last_stage_not_from_the_kernel():
    # waited 4 ms, PREP in the hold 10-16, kernel only at 20: over at 16 - 4 = 12; 16-20 nobody knows
    rows = [row("LOCK_WAIT", 6, 10, 1, 1), row("LOCK_HOLD", 10, 25, 1, 1), row("PREP", 10, 16, 1, 1)]
    assert caused(*FIRST, *rows, row("KERNEL", 20, 25, 1, 1)) == [
        (10, 12, "CPU_PREP"),
        (12, 16, "LOCKED_CPU"),
        (16, 20, "UNATTRIBUTED"),
    ]


def test_plain_stages_of_the_next_partition():
    # PREP 8-13, registering 13-15, STAGE 15-18 beside an upload 16-20 of 4 ms at line rate: from 16 the upload
    # counts since it ends last
    rows = [
        row("PREP", 8, 13, 1, 1),
        row("ALLOC", 13, 15, 1, 1),
        row("STAGE", 15, 18, 1, 1),
        row("H2D", 16, 20, 1, 1, bytes=4 * MS, memory="STAGED"),
        row("KERNEL", 20, 25, 1, 1),
    ]
    assert caused(*FIRST, *rows) == [
        (10, 13, "CPU_PREP"),
        (13, 15, "ALLOCATION"),
        (15, 16, "STAGING"),
        (16, 20, "TRANSFER"),
    ]


def test_an_upload_up_to_line_rate_then_shared_then_slow():
    # partition 1 uploads 8-20, 4 ms at line rate: TRANSFER until 12. Partition 2 uploads 14-30 of 8 ms: 6 of its
    # 16 ms overlap, which is 3 ms of bytes: LINK_CONTENTION until 15; then SLOW_TRANSFER. A download does not count
    rows = [
        row("H2D", 8, 20, 1, 1, bytes=4 * MS, memory="PAGEABLE"),
        row("H2D", 14, 30, 2, 0, bytes=8 * MS, memory="PAGEABLE"),
        row("D2H", 8, 20, 0, 0, bytes=9 * MS),
        row("KERNEL", 20, 25, 1, 1),
    ]
    assert caused(*FIRST, *rows) == [(10, 12, "TRANSFER"), (12, 15, "LINK_CONTENTION"), (15, 20, "SLOW_TRANSFER")]


def test_standing_still_after_a_pageable_copy_while_another_worker_copies_waits_for_that_copy():
    # Real H200 run, narrow lock, pageable: 87 of 135 ms idle were UNATTRIBUTED. A pageable copy holds the driver's
    # lock, so a worker whose copy was over got on only when the other worker's was over too, and no row says so.
    # partition 1 uploads 2-8 and 20-22, waits for the GPU lock at 26; partition 2 uploads 9-19 and 22-25 of 4 and 1 ms
    # at line rate: fair until 13 and 23. 8-9 and 19-20 nobody copies, 25-26 neither.
    rows = [
        row("H2D", 2, 8, 1, 1, bytes=4 * MS, memory="PAGEABLE"),
        row("H2D", 9, 19, 2, 0, bytes=4 * MS, memory="PAGEABLE"),
        row("H2D", 20, 22, 1, 1, bytes=2 * MS, memory="PAGEABLE"),
        row("H2D", 22, 25, 2, 0, bytes=1 * MS, memory="PAGEABLE"),
        row("LOCK_WAIT", 26, 27, 1, 1),
        row("LOCK_HOLD", 27, 30, 1, 1),
        row("KERNEL", 28, 30, 1, 1),
    ]
    first = (row("SYNTHESIS", 0, 1, 0), row("KERNEL", 1, 5, 0, 0))
    assert caused(*first, *rows, device_kind="cuda") == [
        (5, 6, "TRANSFER"),
        (6, 8, "SLOW_TRANSFER"),
        (8, 9, "UNATTRIBUTED"),
        (9, 13, "LINK_CONTENTION"),
        (13, 19, "SLOW_TRANSFER"),
        (19, 20, "UNATTRIBUTED"),
        (20, 22, "TRANSFER"),
        (22, 23, "LINK_CONTENTION"),
        (23, 25, "SLOW_TRANSFER"),
        (25, 26, "UNATTRIBUTED"),
        (26, 27, "LOCKED_OTHER"),
        (27, 28, "UNATTRIBUTED"),
    ]
    why = gaps(handmade.log(*first, *rows, scale=MS, device_kind="cuda"))["why"].tolist()
    said = (
        "partition 1 (worker 1) stood still after a pageable copy of its own while partition 2 copied: pageable upload"
    )
    assert said in why[3]


@pytest.mark.parametrize(
    ("mine", "its", "worker", "kind"),
    [
        ("PINNED", "PAGEABLE", 0, "cuda"),
        ("PAGEABLE", "PINNED", 0, "cuda"),
        ("PAGEABLE", "PAGEABLE", 1, "cuda"),
        ("PAGEABLE", "PAGEABLE", 0, "emulated"),
    ],
)
def test_only_a_pageable_copy_of_another_worker_on_cuda_explains_why_one_stands_still(mine, its, worker, kind):
    rows = [row("H2D", 2, 8, 1, 1, bytes=6 * MS, memory=mine), row("H2D", 9, 19, 2, worker, bytes=4 * MS, memory=its)]
    found = caused(*FIRST, *rows, row("KERNEL", 20, 25, 1, 1), device_kind=kind)
    assert found == [(10, 20, "UNATTRIBUTED")]


def test_the_own_witness_of_another_memory_kind_shares_the_bus():
    # two uploads of partition 1, pageable 10-20 of 2 ms and pinned 10-16 of 6 ms: the pageable ends last and counts;
    # TRANSFER until 12, contention of 6 ms until 18
    rows = [
        row("H2D", 10, 20, 1, 1, bytes=2 * MS, memory="PAGEABLE"),
        row("H2D", 10, 16, 1, 1, bytes=6 * MS, memory="PINNED"),
        row("KERNEL", 20, 25, 1, 1),
    ]
    assert caused(*FIRST, *rows) == [(10, 12, "TRANSFER"), (12, 18, "LINK_CONTENTION"), (18, 20, "SLOW_TRANSFER")]


def test_chunks_of_one_upload_are_one_copy():
    # ten chunks of 1 ms less 0.05 ms, each of 0.5 ms at line rate: together 5 ms from 8 on, fair until 13
    us = 1000
    chunks = [row("H2D", at * MS, at * MS + 950 * us, 1, 1, bytes=MS // 2) for at in range(8, 18)]
    log = handmade.log(row("KERNEL", 5 * MS, 10 * MS, 0, 0), *chunks, row("KERNEL", 18 * MS, 19 * MS, 1, 1))
    assert [(r.start_ns, r.end_ns, r.cause) for r in gaps(log).itertuples()] == [
        (10 * MS, 13 * MS, "TRANSFER"),
        (13 * MS, 17 * MS + 950 * us, "SLOW_TRANSFER"),
        (17 * MS + 950 * us, 18 * MS, "LAUNCH_OR_SYNC"),
    ]
    # a hole of exactly 100 µs does not join: each chunk of 0.9 ms is then slow by itself after 0.5 ms
    apart = [row("H2D", at * MS, at * MS + 900 * us, 1, 1, bytes=MS // 2) for at in range(8, 18)]
    log = handmade.log(row("KERNEL", 5 * MS, 10 * MS, 0, 0), *apart, row("KERNEL", 18 * MS, 19 * MS, 1, 1))
    assert gaps(log)["cause"].tolist() == ["TRANSFER", "SLOW_TRANSFER", "LAUNCH_OR_SYNC"] * 8


def test_a_copy_without_its_size_cannot_be_judged():
    assert caused(*FIRST, row("H2D", 8, 20, 1, 1), row("KERNEL", 20, 25, 1, 1)) == [(10, 20, "UNATTRIBUTED")]


def test_between_kernels_of_one_partition_and_short_stretches_are_launch_and_sync():
    # 10-15 between kernels of partition 0 (whatever ran before); 20-20.1 short before another; 25-25.2 too long
    us = 1000
    edges = [(5_000, 10_000, 0), (15_000, 20_000, 0), (20_100, 25_000, 1), (25_101, 30_000, 2)]
    log = handmade.log(*(row("KERNEL", start * us, end * us, p) for start, end, p in edges))
    assert [(r.start_ns // us, r.end_ns // us, r.cause) for r in gaps(log).itertuples()] == [
        (10_000, 15_000, "LAUNCH_OR_SYNC"),
        (20_000, 20_100, "LAUNCH_OR_SYNC"),
        (25_000, 25_101, "UNATTRIBUTED"),
    ]


def test_a_stage_between_kernels_of_one_partition_is_that_stage():
    rows = [row("KERNEL", 5, 10, 0), row("D2H", 12, 14, 0, bytes=2 * MS), row("KERNEL", 15, 20, 0)]
    assert caused(*rows) == [(10, 12, "LAUNCH_OR_SYNC"), (12, 14, "TRANSFER"), (14, 15, "LAUNCH_OR_SYNC")]


def test_the_first_rule_that_holds_wins():
    # everything of partition 1 at once until 20: synthesis wins until 12, pick-up at 14 (WORKERS_BUSY), the wait until
    # 16, its own upload for the rest
    rows = [
        row("SYNTHESIS", 0, 12, 1),
        row("QUEUE", 12, 14, 1),
        row("LOCK_WAIT", 8, 16, 1, 1),
        row("PREP", 8, 16, 1, 1),
        row("H2D", 8, 20, 1, 1, bytes=12 * MS),
        row("KERNEL", 20, 25, 1, 1),
    ]
    assert caused(*FIRST, *rows) == [
        (10, 12, "SYNTHESIS_STARVED"),
        (12, 14, "WORKERS_BUSY"),
        (14, 16, "LOCKED_OTHER"),
        (16, 20, "TRANSFER"),
    ]


def test_of_two_kernels_that_end_a_gap_the_lower_partition_counts():
    rows = [row("PREP", 10, 20, 1, 1), row("KERNEL", 20, 25, 2, 0), row("KERNEL", 20, 25, 1, 1)]
    assert caused(*FIRST, *rows) == [(10, 20, "CPU_PREP")]


def test_another_gpus_rows_explain_nothing_here():
    # GPU 1: the same partition number of another job holds, waits and uploads; GPU 0 cannot tell
    there = [row(p, 10, 20, 1, 1, gpu=1, job="k", bytes=MS) for p in ("H2D", "PREP", "LOCK_HOLD", "FINISH")]
    assert caused(*FIRST, *there, row("KERNEL", 20, 25, 1, 1)) == [(10, 20, "UNATTRIBUTED")]


def test_jobs_with_equal_partition_numbers_are_apart():
    rows = [row("PREP", 10, 20, 1, 2, job="other"), row("KERNEL", 20, 25, 1, 1)]
    assert caused(*FIRST, *rows) == [(10, 20, "UNATTRIBUTED")]


def test_foreign_rows_without_partitions_follow_their_own_order():
    def operation(phase: str, start: int, end: int, **columns: object) -> dict:
        return row(phase, start, end, -1, -1, **columns)

    rows = [
        operation("KERNEL", 0, 10),
        operation("H2D", 10, 14, bytes=MS, memory="PAGEABLE"),
        operation("H2D", 12, 16, bytes=MS, memory="PINNED"),
        operation("D2H", 15, 18, bytes=MS, memory="UNKNOWN"),
        operation("HOST_SYNC", 9, 20, gpu=-1),
        operation("OTHER", 19, 22, name="launch"),
        operation("OTHER", 22, 24, name="cudaMalloc"),
        operation("MEMSET", 24, 25),
        operation("KERNEL", 30, 35),
        operation("KERNEL", 36, 40),
    ]
    assert caused(*rows, device_kind="foreign") == [
        (10, 14, "SLOW_TRANSFER"),
        (14, 16, "TRANSFER"),
        (16, 18, "UNATTRIBUTED"),
        (18, 20, "HOST_WAIT"),
        (20, 22, "LAUNCH_OR_SYNC"),
        (22, 30, "UNATTRIBUTED"),
        (35, 36, "UNATTRIBUTED"),
    ]
    why = gaps(handmade.log(*rows, scale=MS, device_kind="foreign"))["why"].tolist()
    assert "does not name" in why[2] and "its own memory" in why[6] and "no partition" in why[7]


def test_the_sentence_names_partition_worker_rates_and_holder():
    rate = {"H2D": {"idle": 38.0, "loaded": None}, "D2H": {"idle": 38.0, "loaded": None}}
    rows = [
        row("LOCK_HOLD", 10, 20, 3, 0),
        row("H2D", 10, 20, 3, 0, bytes=16 * MS, memory="PAGEABLE"),
        row("LOCK_WAIT", 9, 20, 4, 1),
        row("H2D", 20, 30, 4, 1, bytes=16 * MS, memory="PAGEABLE"),
        row("KERNEL", 30, 35, 4, 1),
    ]
    frame = gaps(handmade.log(*FIRST, *rows, scale=MS, line_rate_gb_s=rate))
    upload = "pageable upload 1.6 GB/s, 38 GB/s expected"
    assert frame["why"].tolist()[1::2] == [
        f"partition 4 (worker 1) waited for the lock that partition 3 held over {upload}",
        f"partition 4 (worker 1): {upload}",
    ]
    assert set(frame["partition"]) == {4} and set(frame["worker"]) == {1} and set(frame["job"]) == {"j"}


def test_a_part_is_cut_out_of_the_same_causes():
    rows = [row("PREP", 8, 13, 1, 1), row("H2D", 13, 20, 1, 1, bytes=7 * MS), row("KERNEL", 20, 25, 1, 1)]
    frame = gaps(handmade.log(*FIRST, *rows, scale=MS), start_ns=12 * MS, end_ns=15 * MS)
    assert [(r.start_ns // MS, r.end_ns // MS, r.cause) for r in frame.itertuples()] == [
        (12, 13, "CPU_PREP"),
        (13, 15, "TRANSFER"),
    ]


def test_no_kernels_no_gaps():
    assert len(gaps(handmade.log(row("H2D", 0, 10)))) == 0
    assert list(gaps(handmade.log(row("SYNTHESIS", 0, 10)))) == list(gaps(handmade.log(*FIRST)))


# Random logs. The unit is 60 µs: rows one unit apart are merged, rows two units apart are not.
UNIT = 60_000
PHASES = [p.value for p in (Phase.SYNTHESIS, Phase.QUEUE, Phase.ALLOC, Phase.PREP, Phase.LOCK_WAIT, Phase.LOCK_HOLD)]
PHASES += [p.value for p in (Phase.STAGE, Phase.H2D, Phase.D2H, Phase.FINISH, Phase.KERNEL, Phase.KERNEL, Phase.KERNEL)]
STAGE_ORDER = ["ALLOC", "STAGE", "H2D", "D2H", "PREP", "FINISH"]
drawn = st.lists(
    st.tuples(
        st.sampled_from(PHASES),
        st.integers(0, 40),
        st.integers(0, 12),
        st.integers(0, 3),
        st.sampled_from(["PAGEABLE", "PINNED"]),
        st.integers(0, 9),
        st.booleans(),
    ),
    min_size=4,
    max_size=24,
)


def life(partition: int, begin: int, lock: int, lengths: list[int], size: int) -> list[tuple]:
    """The drawn tuples of one orderly partition whose lock covers PREP (0), the upload (1) or the kernel (2) on."""
    at, held, out = begin, 0, []
    steps = ["ALLOC", "SYNTHESIS", "QUEUE", "PREP", "STAGE", "H2D", "KERNEL", "FINISH"]
    for phase, length in zip(steps, lengths, strict=False):
        if phase == ("PREP", "H2D", "KERNEL")[lock]:
            out.append(("LOCK_WAIT", at, lengths[-1], partition, "PINNED", 0, False))
            at = held = at + lengths[-1]
        early = max(0, at - 3) if phase == "H2D" else at  # the upload overlaps its staging
        out.append((phase, early, at - early + length, partition, ("PAGEABLE", "PINNED")[size % 2], size, True))
        at += length
    return [*out, ("LOCK_HOLD", held, at - held, partition, "PINNED", 0, False)]


lives = st.lists(
    st.builds(
        life,
        st.integers(0, 3),
        st.integers(0, 20),
        st.integers(0, 2),
        st.lists(st.integers(0, 9), min_size=9, max_size=9),
        st.integers(0, 9),
    ),
    min_size=2,
    max_size=4,
).map(lambda parts: [item for part in parts for item in part])
drawn = drawn | st.tuples(lives, drawn).map(lambda both: both[0] + both[1][:3]) | lives


def built(items) -> list[dict]:
    """Rows from drawn tuples: partition p lives on worker p % 2; an ALLOC before pick-up has no worker."""
    rows = []
    for phase, start, length, partition, memory, size, flag in items:
        copy = phase in ("H2D", "D2H")
        columns = {"memory": memory, "bytes": size * UNIT} if copy else {}
        if phase == "ALLOC" and flag:
            columns = {"gpu": -1, "worker": -1}
        if phase == "KERNEL":
            columns = {"warmup": partition == 0}
        rows.append(row(phase, start * UNIT, (start + length) * UNIT, partition, partition % 2) | columns)
    return rows


class Oracle:
    """The rules of attribution, applied to one instant after the other with plain loops; line rate 1 byte a ns."""

    def __init__(self, rows: list[dict]) -> None:
        self.rows = [r for r in rows if r["end_ns"] > r["start_ns"]]
        self.kernels = [r for r in self.rows if r["phase"] == "KERNEL"]
        self.merged = self._merge()

    def _merge(self) -> list[dict]:
        out: list[dict] = []
        for r in sorted(self.rows, key=lambda r: r["start_ns"]):
            if r["phase"] == "KERNEL":
                continue
            same = [
                m
                for m in out
                if all(m[k] == r[k] for k in ("partition", "phase", "memory"))
                and (r["phase"] != "ALLOC" or m["worker"] == r["worker"])
                and r["start_ns"] - m["end_ns"] < MERGE_NS
            ]
            if same:
                same[0]["end_ns"] = max(same[0]["end_ns"], r["end_ns"])
                same[0]["bytes"] += r["bytes"]
            else:
                out.append(dict(r))
        return out

    def of(self, partition: int, *phases: str) -> list[dict]:
        return [m for m in self.merged if m["partition"] == partition and m["phase"] in phases]

    def ready(self, p: int) -> int | None:
        synthesis, queue = self.of(p, "SYNTHESIS"), self.of(p, "QUEUE")
        if synthesis:
            return max(m["end_ns"] for m in synthesis)
        return min(m["start_ns"] for m in queue) if queue else None

    def early(self, m: dict) -> bool:
        ready = self.ready(m["partition"])
        return m["phase"] == "ALLOC" and (m["worker"] < 0 or (ready is not None and m["start_ns"] < ready))

    def stage(self, p: int, t: float) -> dict | None:
        """Of the open stages of a partition the one that ends last."""
        open_ = [
            m
            for m in self.of(p, *STAGE_ORDER)
            if m["start_ns"] <= t < m["end_ns"] and not (m["phase"] == "ALLOC" and m["worker"] < 0)
        ]
        order = [p.value for p in Phase]
        return max(open_, key=lambda m: (m["end_ns"], order.index(m["phase"]), m["memory"] == "PINNED"), default=None)

    def contention(self, copy: dict) -> float:
        total = 0.0
        for m in self.merged:
            if m is not copy and m["phase"] == copy["phase"]:
                shared = min(m["end_ns"], copy["end_ns"]) - max(m["start_ns"], copy["start_ns"])
                total += m["bytes"] * max(shared, 0) / (m["end_ns"] - m["start_ns"])
        return total

    def locked(self, stage: dict, t: float) -> str | None:
        if stage["phase"] not in ("H2D", "D2H"):
            return "LOCKED_CPU"
        if not stage["bytes"]:
            return None
        return "LOCKED_TRANSFER" if t < stage["start_ns"] + stage["bytes"] else "LOCKED_SLOW_TRANSFER"

    def over(self, p: int, end: int) -> int:
        """When everything before the kernel that begins at `end` was over."""
        stages = [
            m
            for m in self.of(p, *STAGE_ORDER)
            if m["start_ns"] < end and not (m["phase"] == "ALLOC" and m["worker"] < 0)
        ]
        return max((min(m["end_ns"], end) for m in stages), default=end)

    def waited(self, hold: dict) -> int:
        earlier = [m["end_ns"] for m in self.of(hold["partition"], "LOCK_HOLD") if m["end_ns"] < hold["start_ns"]]
        since = max(earlier, default=-(10**18))
        return sum(
            max(0, min(m["end_ns"], hold["start_ns"]) - max(m["start_ns"], since))
            for m in self.of(hold["partition"], "LOCK_WAIT")
        )

    def cause(self, t: float, ender: dict) -> str | None:
        p, worker, end = ender["partition"], ender["worker"], ender["start_ns"]

        def open_(rows: list[dict]) -> list[dict]:
            return [m for m in rows if m["start_ns"] <= t < m["end_ns"]]

        if open_([m for m in self.of(p, "ALLOC") if self.early(m)]):
            return "ALLOCATION"
        ready = self.ready(p)
        if ready is not None and t < ready:
            return "SYNTHESIS_STARVED"
        queue = self.of(p, "QUEUE")
        begun = [
            r["start_ns"]
            for r in self.rows
            if r["partition"] == p and r["worker"] >= 0 and r["phase"] not in ("SYNTHESIS", "QUEUE")
        ]
        plain = [
            r["start_ns"]
            for r in self.rows
            if r["partition"] == p and r["worker"] >= 0 and r["phase"] not in ("SYNTHESIS", "QUEUE", "KERNEL")
        ]
        taken = max(m["end_ns"] for m in queue) if queue else min(plain) if plain else min(begun)
        if t < taken:
            if open_([m for m in self.merged if m["phase"] == "FINISH" and m["worker"] == worker]):
                return "CPU_FINISH"
            if ready is not None and (queue or plain):
                return "WORKERS_BUSY"
            if open_([r for r in self.rows if r["worker"] == worker and r["phase"] not in ("SYNTHESIS", "QUEUE")]):
                return "WORKERS_BUSY"
        if open_(self.of(p, "LOCK_WAIT")):
            holds = open_([m for m in self.merged if m["phase"] == "LOCK_HOLD"])
            holder = max(holds, key=lambda m: (m["end_ns"], m["partition"]), default=None)
            if holder is not None and holder["partition"] != p:
                stage = self.stage(holder["partition"], t)
                if stage is not None:
                    return self.locked(stage, t) or "LOCKED_OTHER"
            return "LOCKED_OTHER"
        stage = self.stage(p, t)
        if stage is None:
            return self.behind(p, worker, t)
        if stage["phase"] == "FINISH":
            return None
        for hold in open_(self.of(p, "LOCK_HOLD")):
            if t >= self.over(p, end) - self.waited(hold) and self.locked(stage, t):
                return self.locked(stage, t)
        if stage["phase"] not in ("H2D", "D2H"):
            return {"PREP": "CPU_PREP", "ALLOC": "ALLOCATION", "STAGE": "STAGING"}[stage["phase"]]
        if not stage["bytes"]:
            return None
        if t < stage["start_ns"] + stage["bytes"]:
            return "TRANSFER"
        return (
            "LINK_CONTENTION"
            if t < round(stage["start_ns"] + stage["bytes"] + self.contention(stage))
            else "SLOW_TRANSFER"
        )

    def behind(self, p: int, worker: int, t: float) -> str | None:
        """Nothing of the partition is open, and the last that ended was a pageable upload: another worker's counts."""
        order = [phase.value for phase in Phase]
        mine = [m for m in self.of(p, *STAGE_ORDER, "LOCK_WAIT", "LOCK_HOLD") if m["start_ns"] <= t]
        last = max(
            mine,
            key=lambda m: (m["end_ns"], order.index(m["phase"]), m["memory"] == "PINNED", m["start_ns"]),
            default=None,
        )
        if last is None or t < last["end_ns"] or (last["phase"], last["memory"]) != ("H2D", "PAGEABLE"):
            return None
        copies = [
            m
            for m in self.merged
            if (m["phase"], m["memory"]) == ("H2D", "PAGEABLE") and m["bytes"] and m["start_ns"] <= t < m["end_ns"]
        ]
        copy = max(copies, key=lambda m: (m["end_ns"], m["partition"]), default=None)
        if copy is None or copy["worker"] == worker:
            return None
        return "LINK_CONTENTION" if t < copy["start_ns"] + copy["bytes"] else "SLOW_TRANSFER"

    def sums(self) -> dict[str, int]:
        """ns by cause over the window."""
        counted = [k for k in self.kernels if not k["warmup"]]
        if not counted:
            return {}
        low, high = min(k["start_ns"] for k in counted), max(k["end_ns"] for k in counted)
        edges = {low, high} | {r[e] for r in self.rows for e in ("start_ns", "end_ns")}
        for m in self.merged:
            if m["phase"] in ("H2D", "D2H"):
                edges |= {m["start_ns"] + m["bytes"], round(m["start_ns"] + m["bytes"] + self.contention(m))}
            if m["phase"] == "LOCK_HOLD":
                edges |= {self.over(m["partition"], k["start_ns"]) - self.waited(m) for k in self.kernels}
        marks = sorted(edge for edge in edges if low <= edge <= high)
        pieces = []
        for start, end in pairwise(marks):
            middle = (start + end) / 2
            if any(k["start_ns"] <= middle < k["end_ns"] for k in self.kernels):
                continue
            begin = min(k["start_ns"] for k in self.kernels if k["start_ns"] > middle)
            ender = min(
                (k for k in self.kernels if k["start_ns"] == begin), key=lambda k: (k["partition"], k["worker"])
            )
            pieces.append([start, end, self.cause(middle, ender), begin, ender["partition"]])
        out: dict[str, int] = {}
        for start, end, cause, _, p in self._stretches(pieces):
            if cause is None:
                between = any(k["partition"] == p and k["start_ns"] < start for k in self.kernels)
                cause = "LAUNCH_OR_SYNC" if between or end - start <= 100_000 else "UNATTRIBUTED"
            out[cause] = out.get(cause, 0) + end - start
        return out

    @staticmethod
    def _stretches(pieces: list[list]) -> list[list]:
        out: list[list] = []
        for piece in pieces:
            if out and out[-1][1] == piece[0] and out[-1][2:] == piece[2:]:
                out[-1][1] = piece[1]
            else:
                out.append(list(piece))
        return out


def summed(log: Log) -> dict[str, int]:
    frame = gaps(log)
    sums = (frame["end_ns"] - frame["start_ns"]).groupby(frame["cause"], observed=True).sum()
    return {str(cause): int(ns) for cause, ns in sums.items()}


@settings(max_examples=200, deadline=None)
@given(drawn)
def test_random_logs_vs_the_rules_instant_by_instant(items):
    rows = built(items)
    assert summed(handmade.log(*rows, device_kind="cuda")) == Oracle(rows).sums()


@settings(max_examples=100, deadline=None)
@given(drawn, st.randoms(use_true_random=False))
def test_causes_sum_to_idle_and_neither_order_nor_splitting_changes_them(items, random):
    rows = built(items)
    pieces = []
    for r in rows:
        length, left = r["end_ns"] - r["start_ns"], 0
        cut = random.randint(0, length)
        if length:
            left = r["bytes"] * cut // length
        pieces.append(r | {"end_ns": r["start_ns"] + cut, "bytes": left})
        pieces.append(r | {"start_ns": r["start_ns"] + cut, "bytes": r["bytes"] - left})
    random.shuffle(pieces)
    log, split = (handmade.log(*some, device_kind="cuda") for some in (rows, pieces))
    frame = gaps(log)
    length = frame["end_ns"] - frame["start_ns"]
    assert (length > 0).all()
    one = metrics(log)
    idle = int(one["idle_ns"].sum()) if len(one) else 0
    assert int(length.sum()) == idle
    assert (frame["start_ns"].to_numpy()[1:] >= frame["end_ns"].to_numpy()[:-1]).all()
    pd.testing.assert_frame_equal(gaps(split), frame)


@settings(max_examples=100, deadline=None)
@given(
    drawn,
    st.lists(st.sampled_from(["partition", "gpu", "bytes", "worker"]), min_size=1),
    st.randoms(use_true_random=False),
)
def test_causes_sum_to_idle_whatever_a_foreign_log_lacks(items, lost, random):
    rows = [r | {random.choice(lost): random.choice([-1, 0]) for _ in range(2)} for r in built(items)]
    log = handmade.log(*(r | {"bytes": max(r["bytes"], 0)} for r in rows), device_kind="foreign")
    frame, whole = gaps(log), metrics(log)
    by_gpu = (frame["end_ns"] - frame["start_ns"]).groupby(frame["gpu"]).sum().to_dict() if len(frame) else {}
    assert by_gpu == {gpu: idle for gpu, idle in zip(whole["gpu"], whole["idle_ns"], strict=True) if idle}


def test_every_cause_can_be_given():
    source = Path(__file__).read_text(encoding="utf-8")
    assert [cause for cause in GapCause if f'"{cause}"' not in source] == []


@pytest.mark.parametrize("count", [3, 25_000])
def test_sentences_of_very_many_stretches_are_still_of_few_kinds(count):
    rows = handmade.log(row("PREP", 0, 1, 0), row("KERNEL", 1, 2, 0)).frame
    many = pd.concat([rows] * count, ignore_index=True)
    at = np.repeat(np.arange(count), 2)
    many = many.assign(partition=at.astype("int32"), start_ns=many["start_ns"] + 2 * at, end_ns=many["end_ns"] + 2 * at)
    frame = gaps(Log(many, handmade.header(), {}))
    assert len(frame) == count - 1 and frame["cause"].nunique() == 1
    assert frame["why"].nunique() == min(count - 1, 20_001)
