"""The simulator against hand-computed schedules, the stage lists, the production figures and the measured table."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

from cuzkbench.costs import Costs, Spread, Work, production
from cuzkbench.events import Phase
from cuzkbench.logs.log import Log
from cuzkbench.plan import PRESETS, RunPlan
from cuzkbench.simulate import Shape, simulate, simulate_core
from cuzkbench.stages import LOCKS, MEMORIES, stages


def fixed(value: float) -> Spread:
    return Spread(value, value, value)


def work(count: int, synthesis: int = 0, **stage_ns: int) -> Work:
    names = ("synthesis", "prep", "register", "kernels", "download", "unregister", "finish")
    durations = {name: [({"synthesis": synthesis} | stage_ns).get(name, 0)] * count for name in names}
    copies = [(stage_ns.get("upload", 0),)] * count
    return Work(durations, copies, [0] * count, durations["kernels"], durations["kernels"], [0] * count)


def ends(spans: list, name: str) -> list[int]:
    return [span.end for span in spans if span.name == name]


def kernels(log: Log, first: int = 1) -> tuple[float, float]:
    """Utilisation and cadence in s from the given partition on, by the definitions, one GPU."""
    frame = log.frame[log.frame["partition"] >= first]
    rows = frame[frame["phase"] == "KERNEL"]
    busy = (rows["end_ns"] - rows["start_ns"]).sum()
    done = np.sort(frame.loc[frame["phase"] == "FINISH", "end_ns"].to_numpy())
    return busy / (rows["end_ns"].max() - rows["start_ns"].min()), (done[-1] - done[0]) / (len(done) - 1) / 1e9


def test_narrow_lock_vs_hand_schedule() -> None:
    # upload 3, kernels 5, finish 1, two workers. Uploads end at 3 and 6, kernels at 8 and 13. Worker 0 finishes at 9,
    # uploads until 12, waits for the lock until 13 and ends its kernels at 18: a kernel every 5, none between.
    spans = simulate_core(Shape(stages("narrow", "pageable"), 2, queue_depth=9), work(4, upload=3, kernels=5, finish=1))
    assert ends(spans, "upload") == [3, 6, 12, 17]
    assert ends(spans, "kernels") == [8, 13, 18, 23]
    assert ends(spans, "finish") == [9, 14, 19, 24]
    second = next(span for span in spans if span.name == "upload" and span.partition == 1)
    assert (second.start, second.granted) == (0, 3)  # asked for at once, on the bus after the first


def test_interleaved_uploads_vs_hand_schedule() -> None:
    # two copies of 2 each, both workers ask at 0: a0 to 2, b0 to 4, a1 to 6, b1 to 8
    two = dataclasses.replace(work(2, kernels=5), copies=[(2, 2)] * 2)
    shape = Shape(stages("narrow", "pageable"), 2, queue_depth=9, interleaved=True)
    assert ends(simulate_core(shape, two), "upload") == [2, 4, 6, 8]
    assert ends(simulate_core(dataclasses.replace(shape, interleaved=False), two), "upload") == [4, 8]


def test_coarse_lock_vs_hand_schedule() -> None:
    # everything under the lock: one partition every 2 + 3 + 5 + 1 = 11, whatever the number of workers
    shape = Shape(stages("coarse", "pageable"), 3, queue_depth=9)
    spans = simulate_core(shape, work(4, prep=2, upload=3, kernels=5, finish=1))
    assert ends(spans, "finish") == [11, 22, 33, 44]
    assert [span.worker for span in spans if span.name == "hold"] == [0, 1, 2, 0]  # first come, first served


def test_a_callers_way_back_leads_through_the_bus() -> None:
    # the same two uploads: a0 to 2, b0 to 4, a1 to 6, b1 to 8. Worker 0's copies are over at 6, but it goes on at 8,
    # when the bus is free again: kernels of 5 until 13 and 18 instead of 11 and 16
    two = dataclasses.replace(work(2, kernels=5), copies=[(2, 2)] * 2)
    shape = Shape(stages("narrow", "pageable"), 2, queue_depth=9, interleaved=True)
    assert ends(simulate_core(shape, two), "kernels") == [11, 16]
    spans = simulate_core(dataclasses.replace(shape, settles=True), two)
    assert ends(spans, "upload") == [2, 4, 6, 8] and ends(spans, "kernels") == [13, 18]


def test_queue_bound_stops_synthesis() -> None:
    # synthesis 1, kernels 10, one worker, one place in the queue: partition 0 is picked up at 1, 1 waits in the queue
    # from 2, 2 is done at 3 and waits for the place until 11; only then may the one synthesis worker begin with 3.
    spans = simulate_core(Shape(stages("narrow", "pageable"), 1), work(4, synthesis=1, kernels=10))
    assert ends(spans, "synthesis") == [1, 2, 3, 12]


def test_pool_stops_synthesis_until_the_kernels_end() -> None:
    # one buffer: synthesis 1, upload 2, kernels 4, finish 3. The buffer comes back at 7, before FINISH ends at 10.
    shape = Shape(stages("narrow", "pinned"), 1, queue_depth=9, pool=1)
    spans = simulate_core(shape, work(2, synthesis=1, upload=2, kernels=4, finish=3))
    assert ends(spans, "buffer") == [7]
    assert ends(spans, "synthesis") == [1, 8]
    assert ends(spans, "finish") == [10, 19]


@pytest.mark.parametrize("lock", LOCKS)
@pytest.mark.parametrize("memory", MEMORIES)
def test_rows_follow_the_stage_list(lock: str, memory: str) -> None:
    log = simulate(RunPlan(lock=lock, memory=memory, partitions=3), seed=2)
    for partition, rows in log.frame[log.frame["gpu"] >= 0].groupby("partition"):
        hold = rows[rows["phase"] == "LOCK_HOLD"].iloc[0]
        done = -1
        for stage in stages(lock, memory):
            of = rows[rows["phase"] == stage.phase]
            if stage.phase is Phase.ALLOC:
                of = of[of["name"] == stage.name]
            inside = of["start_ns"].min() >= hold["start_ns"] and of["end_ns"].max() <= hold["end_ns"]
            assert inside == stage.locked, (partition, stage)
            assert of["start_ns"].min() >= done
            done = of["end_ns"].max()


@pytest.mark.parametrize("preset", PRESETS)
def test_engines_and_lock_serve_one_at_a_time(preset: str) -> None:
    log = simulate(RunPlan.named(preset), seed=3)
    for phase in ("KERNEL", "LOCK_HOLD"):
        for _, rows in log.frame[log.frame["phase"] == phase].groupby("gpu"):
            rows = rows.sort_values("start_ns")
            assert (rows["start_ns"].to_numpy()[1:] >= rows["end_ns"].to_numpy()[:-1]).all()
    again = simulate(RunPlan.named(preset), seed=3)
    pd.testing.assert_frame_equal(log.frame, again.frame)


def test_seed_case_vs_what_operators_saw() -> None:
    # the loaded part, from the fourth measured partition on (partition 0 is the warm-up)
    for seed in range(8):
        log = simulate(RunPlan.named("seed-case"), seed=seed)
        utilisation, cadence_s = kernels(log, first=4)
        assert 3.5 <= cadence_s <= 4.5 and 0.4 <= utilisation <= 0.6, seed
        frame = log.frame[log.frame["partition"] >= 4]
        picked = frame[frame["phase"] == "QUEUE"].set_index("partition")["end_ns"]
        spans = frame[frame["phase"] == "KERNEL"].groupby("partition").agg({"start_ns": "min", "end_ns": "max"})
        prove_start_s = (spans["end_ns"] - picked) / 1e9
        assert prove_start_s.between(4.2, 16.2).all(), seed
        assert ((spans["end_ns"] - spans["start_ns"]) / 1e9).between(1.5, 2.0).all(), seed
        chained = log.frame[log.frame["partition"].between(1, 3)]
        early = chained[chained["phase"] == "KERNEL"]
        assert (early["end_ns"] - early["start_ns"]).sum() > 0.75 * (early["end_ns"].max() - early["start_ns"].min())


def test_fixed_vs_targets() -> None:
    for seed in range(8):
        utilisation, cadence_s = kernels(simulate(RunPlan.named("fixed"), seed=seed))
        assert utilisation >= 0.95 and cadence_s <= 2.0, seed


# lock, memory, workers, the row's own H2D GB/s, measured utilisation: one H200, 12.5 GB, spin kernels of 1.75 s,
# PREP 0.4 and FINISH 0.3 s, eight partitions from a standing start. Two pageable copies under load share 4.1 GB/s, one
# after the other: each row then shows 3.4. The coarse rows were measured with an unfair lock that starved a worker.
MEASURED = [
    ("coarse", "pageable", 2, 7.7, None),
    ("coarse", "pinned", 2, 55.2, None),
    ("device", "pageable", 2, 7.8, 0.55),
    ("device", "pageable", 2, 4.1, 0.39),
    ("device", "pinned", 2, 55.3, 0.90),
    ("narrow", "pageable", 2, 7.6, 0.90),
    ("narrow", "pageable", 2, 4.1, 0.59),
    ("narrow", "pinned", 2, 38.3, 1.00),
    ("narrow", "pinned", 1, 55.3, 0.68),
]


@pytest.mark.parametrize(("lock", "memory", "workers", "rate", "measured"), MEASURED)
def test_measured_table_vs_its_own_stage_times(
    lock: str, memory: str, workers: int, rate: float, measured: float
) -> None:
    costs = Costs(
        synthesis_s=fixed(0.1),
        abc_bytes=12_500_000_000,
        witness_bytes=0,
        line_rate=rate,
        pageable_rate=rate,
    )
    plan = RunPlan(lock=lock, memory=memory, workers=workers, partitions=8, warmup=0, kernels="timed:1.75")
    utilisation, cadence_s = kernels(simulate(plan, costs), first=0)
    copy_s = 12.5 / rate
    if lock == "coarse" or workers == 1:
        assert cadence_s == pytest.approx(0.4 + copy_s + 1.75 + 0.3, rel=1e-3)
    elif lock == "device":
        assert cadence_s == pytest.approx(copy_s + 1.75, rel=1e-3)
    else:
        # the longest of kernel, link and half a worker's cycle: the mean of eight is near the bound
        bound = max(1.75, copy_s, (0.4 + copy_s + 1.75 + 0.3) / 2)
        assert cadence_s == pytest.approx(bound, rel=0.05)
    if measured is not None:
        assert utilisation == pytest.approx(measured, abs=0.04)


def test_draws_do_not_depend_on_the_policies() -> None:
    plain = RunPlan(lock="coarse", memory="pageable", cpu_load=4).resolve("model")
    other = plain.replace(lock="narrow", memory="registered", workers=3)
    costs = production(plain)
    one, two = costs.work(plain, 5), costs.work(other, 5)
    assert one.stages == two.stages
    assert one.copies != two.copies


def test_another_size_scales_bytes_and_kernels() -> None:
    small, big = (simulate(RunPlan.named("fixed", log2_size=size)).frame for size in (24, 27))
    for frame in (small, big):
        assert (
            (frame.loc[frame["name"] == "prep", "end_ns"] - frame.loc[frame["name"] == "prep", "start_ns"])
            .eq(4e8)
            .all()
        )
    ratio = big.loc[big["name"] == "a", "bytes"].iloc[0] / small.loc[small["name"] == "a", "bytes"].iloc[0]
    assert ratio == pytest.approx(8)


def test_pool_high_water_is_within_the_pool() -> None:
    plan = RunPlan.named("fixed").resolve("model")
    trailer = simulate(plan).trailer
    assert trailer is not None and 2 <= trailer["pool"]["high_water_buffers"] <= trailer["pool"]["allocated"] == 10 + 2


def test_spread_refuses_disorder() -> None:
    with pytest.raises(ValueError, match="low <= mean <= high"):
        Spread(2.0, 1.0, 3.0)
    drawn = Spread(1.6, 3.1, 4.2).draw((7,), 4000)
    assert drawn.min() >= 1.6 and drawn.max() <= 4.2 and drawn.mean() == pytest.approx(3.1, abs=0.03)
    assert (drawn[:10] == Spread(1.6, 3.1, 4.2).draw((7,), 10)).all()
    assert dataclasses.replace(Costs(), kernel_s=fixed(1.0)).kernel_s.draw((1,), 2).tolist() == [1.0, 1.0]
