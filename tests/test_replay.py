"""The replay of a log's own stages against that log's metrics, and inferred durations against hand-made rows."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cuzkbench.analysis.metrics import metrics, partitions
from cuzkbench.analysis.replay import CannotReplay, leading, replay
from cuzkbench.analysis.theories import theories
from cuzkbench.events import Lane
from cuzkbench.plan import PRESETS, RunPlan
from cuzkbench.simulate import simulate
from cuzkbench.stages import LOCKS, MEMORIES
from tests.handmade import MS, log, row

PLANS = [RunPlan.named(preset) for preset in PRESETS]
PLANS += [RunPlan(lock=lock, memory=memory, workers=3, cpu_load=14) for lock in LOCKS for memory in MEMORIES]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.preset or f"{plan.lock}-{plan.memory}-{plan.workers}")
def test_own_replay_vs_metrics(plan: RunPlan) -> None:
    made = simulate(plan, seed=3)
    own, figures = replay(made).own(), metrics(made)
    assert own.cadence_ns == pytest.approx(figures["cadence_ns"].mean(), rel=1e-6)
    assert own.window_ns == pytest.approx(figures["window_ns"].sum(), rel=1e-6)
    assert own.idle_ns == pytest.approx(figures["idle_ns"].sum(), rel=1e-6, abs=1000)
    done = partitions(made)
    assert own.prove_start_ns == pytest.approx(done.loc[~done["warmup"], "prove_start_ns"].median(), rel=1e-6)


def test_policies_are_read_off_the_rows() -> None:
    for lock in LOCKS:
        for memory in MEMORIES:
            made = simulate(RunPlan(lock=lock, memory=memory))
            unsaid = dataclasses.replace(made, header=made.header | {"plan": None})
            run = replay(unsaid)
            assert (run.lock, run.memory, run.shape.workers) == (lock, memory, 2)
            assert run.own().cadence_ns == pytest.approx(replay(made).measured.cadence_ns, rel=0.01)


def test_latency_stays_with_its_stage() -> None:
    # one worker, narrow lock. PREP 0..2, the lock is asked for at 3 (1 late) and held 3..12, kernels 4..6 and 7..11: a
    # lead of 1, an extent of 7 of which 6 busy, 1 to the release. FINISH 12..13; the waiting partition 1 is taken at
    # 15 only, so the worker was busy 2 longer than its proof. Partition 1 the same from 15 on.
    made = log(
        *(row("SYNTHESIS", 0, 0, k) for k in (0, 1)),
        *(
            row(phase, start + at, end + at, k, 0)
            for k, at in ((0, 0), (1, 15))
            for phase, start, end in (
                ("PREP", 0, 2),
                ("LOCK_WAIT", 3, 3),
                ("LOCK_HOLD", 3, 12),
                ("KERNEL", 4, 6),
                ("KERNEL", 7, 11),
                ("FINISH", 12, 13),
            )
        ),
        scale=MS,
    )
    work = replay(made).work
    assert work.stages["prep"] == [3 * MS] * 2
    assert work.stages["kernels"] == [9 * MS] * 2
    assert (work.lead_ns, work.extent_ns, work.busy_ns) == ([MS] * 2, [7 * MS] * 2, [6 * MS] * 2)
    assert (work.stages["finish"], work.tail_ns) == ([3 * MS, MS], [-2 * MS, 0])
    # W = [4, 26), busy 12, completions 13 and 28
    assert replay(made).own()[:4] == (15 * MS, 12 / 22, 10 * MS, 22 * MS)


def test_a_shared_bus_is_told_from_a_slow_one() -> None:
    # rows as a driver stamps them, from the call on: 0..4 alone, 1..7 behind it, so 4 and 3 on the bus
    made = log(
        row("H2D", 0, 4, 0, 0, bytes=4 * MS, memory="PAGEABLE"),
        row("KERNEL", 4, 9, 0, 0),
        row("PREP", 0, 1, 1, 1),
        row("H2D", 1, 7, 1, 1, bytes=4 * MS, memory="PAGEABLE"),
        row("KERNEL", 9, 14, 1, 1),
        scale=MS,
    )
    run = replay(made)
    assert run.work.copies == [(4 * MS,), (3 * MS,)] and not run.shape.interleaved


@pytest.mark.parametrize(("second", "interleaved"), [(((2, 4), (6, 8)), True), (((4, 6), (6, 8)), False)])
def test_interleaved_uploads_are_seen(second: tuple, interleaved: bool) -> None:
    # two copies of 2 each and worker; the second upload's lie between the first's, or after them
    first = ((0, 2), (4, 6)) if interleaved else ((0, 2), (2, 4))
    rows = [
        row("H2D", 0 if interleaved else start, end, k, k, bytes=2 * MS)
        for k, copies in enumerate((first, second))
        for start, end in copies
    ]
    made = log(*rows, row("PREP", 0, 0, 1, 1), row("KERNEL", 6, 20, 0, 0), row("KERNEL", 20, 34, 1, 1), scale=MS)
    run = replay(made)
    assert run.shape.interleaved is interleaved
    assert run.work.copies == [(2 * MS, 2 * MS)] * 2


def test_waiting_for_the_pool_is_an_allocation_stall() -> None:
    # one buffer, one worker: synthesis 0..4, upload 4..5, kernels 5..10; only then synthesis 10..14, upload 14..15,
    # kernels 15..20: W = [5, 20), idle 5. With buffers enough: synthesis 4..8, upload 10..11, kernels 11..16, idle 1.
    plan = RunPlan(workers=1, synthesis_workers=1, queue_depth=1, partitions=2, warmup=0).resolve("model")
    made = log(
        row("SYNTHESIS", 0, 4, 0),
        row("H2D", 4, 5, 0, 0, bytes=MS),
        row("KERNEL", 5, 10, 0, 0),
        row("ALLOC", 4, 10, 1, -1, gpu=-1),
        row("SYNTHESIS", 10, 14, 1),
        row("H2D", 14, 15, 1, 0, bytes=MS),
        row("KERNEL", 15, 20, 1, 0),
        scale=MS,
        plan=plan.as_mapping(),
    )
    made = dataclasses.replace(made, trailer={"ended": "done", "pool": {"allocated": 1}})
    found = theories(made).set_index("name").loc["allocation-stalls"]
    assert (found["verdict"], found["explained_idle_ns"]) == ("supported", 4 * MS)


def test_what_a_replay_needs() -> None:
    with pytest.raises(CannotReplay, match="no kernels whose partition is known"):
        replay(log(row("PREP", 0, 5, 0)))
    with pytest.raises(CannotReplay, match="which GPU and worker"):
        replay(log(row("KERNEL", 0, 5, 0, -1), row("KERNEL", 5, 9, 1, -1)))
    with pytest.raises(CannotReplay, match="no cadence"):
        replay(log(row("KERNEL", 0, 5, 0, 0), row("KERNEL", 5, 9, 1, 0, warmup=True)))


def test_a_plan_of_another_version_is_a_lack_and_no_error() -> None:
    # seen: RunPlan.from_mapping's ValueError ended `explain` on a log whose header names a knob of a later version
    made = log(row("KERNEL", 0, 10, 0, 0), row("KERNEL", 20, 30, 1, 0), row("KERNEL", 40, 50, 2, 0), scale=MS)
    strange = dataclasses.replace(made, header=made.header | {"plan": {"lock": "narrow", "colour": "blue"}})
    with pytest.raises(CannotReplay, match="plan fields colour"):
        replay(strange)
    assert set(theories(strange)["verdict"]) == {"cannot tell"}


def test_copies_that_end_at_once_share_the_bus_by_size() -> None:
    # seen on a GPU: both marks came after the second copy, so one had 582 ms for 2.1 GB and the other nothing. Here
    # 0..3 alone, then 3..9 for two of 3 MB at 1 GB/s at best: 3 each, in one case 2 and 4 MB: 2 and 4
    for sizes in ((3, 3), (2, 4)):
        made = log(
            row("H2D", 0, 3, 0, 0, bytes=3 * MS, memory="PAGEABLE"),
            row("H2D", 3, 9, 0, 0, bytes=sizes[0] * MS, memory="PAGEABLE"),
            row("KERNEL", 9, 14, 0, 0),
            row("PREP", 0, 0, 1, 1),
            row("H2D", 3, 9, 1, 1, bytes=sizes[1] * MS, memory="PAGEABLE"),
            row("KERNEL", 14, 19, 1, 1),
            scale=MS,
        )
        assert replay(made).work.copies == [(3 * MS, sizes[0] * MS), (sizes[1] * MS,)]


@pytest.mark.parametrize(("kind", "late"), [("cuda", 0), ("emulated", 3 * MS)])
def test_waiting_for_the_drivers_lock_is_no_time_of_its_own(kind: str, late: int) -> None:
    # partition 0's copy ends at 3, but its worker asks for the GPU lock at 6, when partition 1's copy has ended
    made = log(
        row("H2D", 0, 3, 0, 0, bytes=3 * MS, memory="PAGEABLE"),
        row("LOCK_HOLD", 6, 11, 0, 0),
        row("KERNEL", 6, 11, 0, 0),
        row("PREP", 0, 1, 1, 1),
        row("H2D", 3, 6, 1, 1, bytes=3 * MS, memory="PAGEABLE"),
        row("LOCK_WAIT", 6, 11, 1, 1),
        row("LOCK_HOLD", 11, 16, 1, 1),
        row("KERNEL", 11, 16, 1, 1),
        scale=MS,
        device_kind=kind,
    )
    run = replay(made)
    assert run.work.stages["prep"] == [late, MS]
    assert run.work.copies == [(3 * MS,), (3 * MS,)]


@pytest.mark.parametrize(("kind", "own"), [("cuda", 2 * MS), ("emulated", 7 * MS)])
def test_memory_is_unregistered_when_the_gpu_is_at_rest(kind: str, own: int) -> None:
    # partition 0's call lasts from 5 to 12, over partition 1's kernels, which end at 10; then it takes 2.
    made = log(
        row("H2D", 0, 0, 0, 0, bytes=1, memory="REGISTERED"),
        row("KERNEL", 0, 5, 0, 0),
        row("ALLOC", 5, 12, 0, 0),
        row("PREP", 0, 0, 1, 1),
        row("H2D", 0, 0, 1, 1, bytes=1, memory="REGISTERED"),
        row("KERNEL", 5, 10, 1, 1),
        scale=MS,
        device_kind=kind,
    )
    run = replay(made)
    assert run.work.stages["unregister"] == [own, 0]
    lane = next(stage.lane for stage in run.shape.stages if stage.name == "unregister")
    assert lane is (Lane.COMPUTE if kind == "cuda" else Lane.CPU)


def test_overtaking_the_warm_up_is_no_gain() -> None:
    # one synthesis worker, kernels 5: partition 1 reached the GPU first, the warm-up second, partition 2 third:
    # completions of 1 and 2 are 10 apart where the GPU never idled. What counts of a change is what follows both.
    made = log(
        *(row("SYNTHESIS", 0, 0, k) for k in range(4)),
        *(row("KERNEL", 5 * at, 5 * at + 5, k, at % 2, warmup=k == 0) for at, k in enumerate((1, 0, 2, 3))),
        scale=MS,
    )
    run = replay(made)
    assert run.leading == 2 and run.measured.cadence_ns == 7.5 * MS
    assert run.run(as_logged=True).cadence_ns == 7.5 * MS
    assert run.own().cadence_ns == 5 * MS


def test_a_log_of_several_runs_keeps_measured_partitions():
    """A warm-up that recurs every 1,001 partitions made all replayed ones warm-up: a window of nothing to divide by."""
    overtaken = np.array([False, True, *[False] * 20])
    recurring = np.array(([True] + [False] * 9) * 5)
    assert leading(overtaken, 2) == 2
    assert leading(recurring, 2) == 1
    assert leading(np.zeros(5, bool), 2) == 0
