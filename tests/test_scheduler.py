"""Whole runs: what the log of a run holds, and how a run ends when something goes wrong.

Most run on the host device with kernels that take no time and a link that is not slow; the last ones prove for real.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuzkbench import bls12_381 as curve
from cuzkbench import logs
from cuzkbench.device.host import HostDevice
from cuzkbench.events import HEADER, TRAILER, DeviceError, Lane, Memory
from cuzkbench.plan import RunPlan
from cuzkbench.prover import memory, scheduler
from cuzkbench.prover.scheduler import RunFailed, run_plan
from cuzkbench.prover.work import TIMED_FINISH, TIMED_LABEL, TIMED_PREP, Groth16, Slot
from cuzkbench.prover.worker import Worker
from cuzkbench.stages import LOCKS, MEMORIES, stages

VECTOR = 70_000
CPU_STAGES = ("PREP", "FINISH", "SYNTHESIS", "QUEUE", "LOCK_WAIT", "LOCK_HOLD")


class Math:
    """Kernels that copy their partition's number along; one may fail, or wait for a test."""

    def __init__(self) -> None:
        self.failing: set[int] = set()

    def ntt(self, values: np.ndarray, log2_size: int, **_: bool) -> None:
        if int(values[0]) in self.failing:
            raise ArithmeticError(f"kernel of partition {values[0]}")


class FakeWork:
    """A partition is its number in three vectors; its proof is the number that came back from the device."""

    nbytes, key_bytes, proofs, labels, seed = 3 * VECTOR, 0, True, (), 11

    def __init__(self) -> None:
        self.vectors = {name: slice(index * VECTOR, (index + 1) * VECTOR) for index, name in enumerate("abc")}
        self.synthesised: list[int] = []
        self.bad_proofs: set[int] = set()
        self.bad_synthesis: set[int] = set()

    def load(self, device: Any, progress: Any) -> None:
        progress("keys", 1, 1)

    def key_on(self, device: Any) -> None:
        pass

    def slot(self, device: Any, key: None) -> Slot:
        device_memory = device.buffer(self.nbytes)
        parts = {name: device_memory.view(part.start, VECTOR) for name, part in self.vectors.items()}
        kernels = [
            (f"ntt.{name}", lambda stream, part=part: device.ntt(stream, part, 1)) for name, part in parts.items()
        ]
        return Slot(device_memory, kernels, {"sum": (parts["c"].view(0, 8), device.host_buffer(8, Memory.PINNED))})

    def synthesise(self, partition: int, out: np.ndarray, threads: int) -> None:
        if partition in self.bad_synthesis:
            raise ZeroDivisionError(f"synthesis of partition {partition}")
        self.synthesised.append(partition)
        out[:] = partition

    def prepare(self, partition: int, buffer: np.ndarray) -> int:
        assert (buffer == partition).all()  # nobody wrote into a buffer in flight
        return partition

    def finish(self, device: Any, slot: Slot, prepared: int) -> bytes:
        return slot.results["sum"][1].array.tobytes()

    def verify(self, prepared: int, proof: bytes) -> bool:
        assert proof == bytes([prepared]) * 8  # its own vectors were in its own device memory
        return prepared not in self.bad_proofs


@pytest.fixture
def math(monkeypatch: pytest.MonkeyPatch) -> Math:
    math = Math()

    def open_device(spec: str, gpu: int) -> HostDevice:
        device = HostDevice(gpu, math=math)
        monkeypatch.setattr(device, "emulated_ns", lambda stage, nbytes=0: 0)
        return device

    monkeypatch.setattr(scheduler, "open_device", open_device)
    return math


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch, math: Math) -> FakeWork:
    work = FakeWork()
    monkeypatch.setattr(scheduler, "work_of", lambda plan: work)
    return work


def plan(**knobs: Any) -> RunPlan:
    return RunPlan(**{"device": "host", "partitions": 6, "warmup": 1} | knobs)


def ids(frame: Any) -> list[int]:
    return sorted(frame.partition.unique().tolist())


@pytest.mark.parametrize("memory_name", MEMORIES)
@pytest.mark.parametrize("lock", LOCKS)
def test_rows_of_a_partition_vs_the_stage_list(work: FakeWork, tmp_path: Path, lock: str, memory_name: str) -> None:
    log = logs.read(run_plan(plan(lock=lock, memory=memory_name), tmp_path / "log.jsonl"))
    assert log.complete and log.trailer["ended"] == "done" and log.trailer["proofs"] == {"made": 7, "verified": 7}
    assert set(log.header) == set(HEADER) and set(log.trailer) == set(TRAILER)
    listed = stages(lock, memory_name)
    for partition in range(7):
        rows = log.frame[log.frame.partition == partition].sort_values(["start_ns", "end_ns"], kind="stable")
        assert rows.warmup.all() if partition == 0 else not rows.warmup.any()
        assert set(rows.job) == {"warmup" if partition == 0 else "proof"}
        counts = Counter(rows.phase)
        assert all(counts[phase] == 1 for phase in CPU_STAGES) and counts["D2H"] == 1
        assert rows[rows.phase == "KERNEL"].name.tolist() == ["ntt.a", "ntt.b", "ntt.c"]
        assert rows[rows.phase == "VERIFY"].name.tolist() == ["accepted"]
        early = rows[rows.phase.isin(["SYNTHESIS", "QUEUE"]) | (rows.name == "buffer")]
        late = rows.drop(early.index)
        assert set(zip(early.gpu, early.worker, strict=True)) == {(-1, -1)}
        assert len(set(zip(late.gpu, late.worker, strict=True))) == 1 and late.gpu.min() == 0
        uploads = rows[rows.phase == "H2D"]
        assert uploads.bytes.sum() == work.nbytes and set(uploads.memory) == {MEMORIES[memory_name].value}
        assert set(uploads.name) == {"a", "b", "c"} and uploads.stream.min() >= 0

        spans = {
            stage.name: rows[
                (rows.phase == stage.phase) & ((rows.name == stage.name) | (stage.phase in ("H2D", "KERNEL")))
            ]
            for stage in listed
        }
        assert all(len(part) for part in spans.values())
        for before, after in pairwise(spans.values()):
            assert before.end_ns.max() <= after.start_ns.min()
        hold = rows[rows.phase == "LOCK_HOLD"].iloc[0]
        for stage in listed:
            start, end = spans[stage.name].start_ns.min(), spans[stage.name].end_ns.max()
            assert (hold.start_ns <= start and end <= hold.end_ns) == stage.locked
            assert stage.locked or end <= hold.start_ns or hold.end_ns <= start


def test_holds_and_kernels_of_two_workers_never_overlap(work: FakeWork, tmp_path: Path) -> None:
    frame = logs.read(run_plan(plan(partitions=30, workers=3), tmp_path / "log.jsonl")).frame
    assert len(set(frame[frame.phase == "KERNEL"].worker)) == 3
    for phase in ("LOCK_HOLD", "KERNEL"):
        rows = frame[frame.phase == phase].sort_values(["start_ns", "end_ns"])
        assert (rows.end_ns.to_numpy()[:-1] <= rows.start_ns.to_numpy()[1:]).all()
    assert ids(frame[frame.phase == "FINISH"]) == list(range(31)) and sorted(work.synthesised)[1:] == list(range(31))


@pytest.mark.parametrize("knobs", [{}, {"workers": 1}, {"gpus": 2}, {"lock": "coarse"}, {"queue_depth": 1}])
def test_the_warmup_has_its_turns_before_any_measured_partition(
    work: FakeWork, tmp_path: Path, knobs: dict[str, Any]
) -> None:
    """Partition 1 overtook the warm-up, whose turn among twelve measured ones made cadence read 9 % long."""
    made = plan(warmup=3, synthesis_workers=4, **knobs)
    frame = logs.read(run_plan(made, tmp_path / "log.jsonl")).frame
    holds = frame[frame.phase == "LOCK_HOLD"]
    assert ids(holds) == list(range(9))
    assert holds[holds.warmup].start_ns.max() <= holds[~holds.warmup].start_ns.min()


def test_two_gpus_have_locks_and_workers_of_their_own(work: FakeWork, tmp_path: Path) -> None:
    log = logs.read(run_plan(plan(partitions=20, gpus=2), tmp_path / "log.jsonl"))
    frame = log.frame[log.frame.phase == "KERNEL"]
    assert set(zip(frame.gpu, frame.worker, strict=True)) == {(0, 0), (0, 1), (1, 2), (1, 3)}
    assert [gpu["gpu"] for gpu in log.header["gpus"]] == [0, 1]


def test_buffers_in_flight_stay_within_the_cap(work: FakeWork, tmp_path: Path) -> None:
    # a buffer for each of two workers and for each of the two that are made or wait
    log = logs.read(run_plan(plan(partitions=30, queue_depth=2), tmp_path / "log.jsonl"))
    pool = log.trailer["pool"]
    assert pool["allocated"] == 4 and pool["high_water_buffers"] <= 4
    assert pool["high_water_bytes"] == pool["high_water_buffers"] * work.nbytes
    assert pool["reused"] == 31 - pool["high_water_buffers"]


def test_without_hooks_only_completions_are_recorded(work: FakeWork, tmp_path: Path) -> None:
    log = logs.read(run_plan(plan(timing=False), tmp_path / "log.jsonl"))
    assert Counter(log.frame.phase) == {"FINISH": 7, "VERIFY": 7}
    assert log.trailer["hooks"]["span_ns"] == 0


def test_no_verify_makes_no_rows_and_says_so(work: FakeWork, tmp_path: Path) -> None:
    log = logs.read(run_plan(plan(verify=False), tmp_path / "log.jsonl"))
    assert "VERIFY" not in set(log.frame.phase) and log.trailer["proofs"] == {"made": 7, "verified": 0}


def test_the_hooks_cost_is_in_the_trailer(work: FakeWork, tmp_path: Path) -> None:
    log = logs.read(run_plan(plan(), tmp_path / "log.jsonl"))
    hooks = log.trailer["hooks"]
    assert hooks["events"] == len(log.frame) and hooks["cost_ns"] > hooks["events"] * hooks["span_ns"] > 0


def test_a_rejected_proof_ends_the_run_and_keeps_the_log(work: FakeWork, tmp_path: Path) -> None:
    work.bad_proofs = {3}
    with pytest.raises(RunFailed, match="the proof of partition 3 was rejected") as caught:
        run_plan(plan(partitions=200), tmp_path / "log.jsonl")
    log = logs.read(caught.value.path)
    verdicts = log.frame[log.frame.phase == "VERIFY"].set_index("partition").name
    assert verdicts[3] == "rejected" and verdicts[1] == "accepted"
    assert log.trailer["ended"] == "failed" and "partition 3 was rejected" in log.trailer["error"]
    assert log.trailer["proofs"]["verified"] == (verdicts == "accepted").sum()


def test_a_failing_kernel_ends_the_run_with_everything_finished_on_disk(
    work: FakeWork, math: Math, tmp_path: Path
) -> None:
    math.failing, interval, threads = {4}, sys.getswitchinterval(), threading.active_count()
    with pytest.raises(RunFailed, match=r"DeviceError: ntt \(2\^1\): ArithmeticError: kernel of partition 4") as caught:
        run_plan(plan(partitions=200), tmp_path / "log.jsonl")
    assert isinstance(caught.value.__cause__, DeviceError)
    log = logs.read(tmp_path / "log.jsonl")
    finished, kernels = ids(log.frame[log.frame.phase == "FINISH"]), ids(log.frame[log.frame.phase == "KERNEL"])
    assert log.complete and log.trailer["ended"] == "failed"
    assert set(finished) >= {0, 1, 2} and 4 not in kernels and len(finished) < 201
    assert finished == ids(log.frame[log.frame.phase == "VERIFY"]) and log.trailer["proofs"]["made"] == len(finished)
    assert sys.getswitchinterval() == interval and threading.active_count() == threads


def test_a_failing_synthesis_ends_the_run(work: FakeWork, tmp_path: Path) -> None:
    work.bad_synthesis = {5}
    with pytest.raises(RunFailed, match="ZeroDivisionError: synthesis of partition 5"):
        run_plan(plan(partitions=200), tmp_path / "log.jsonl")
    log = logs.read(tmp_path / "log.jsonl")
    assert set(ids(log.frame[log.frame.phase == "FINISH"])) <= set(range(5)) and log.trailer["ended"] == "failed"


def test_ctrl_c_ends_in_order(work: FakeWork, tmp_path: Path) -> None:
    def interrupt(stage: str, done: int, total: int) -> None:
        if stage == "partitions" and done >= 2:
            raise KeyboardInterrupt  # where a signal would raise it: in the main thread

    with pytest.raises(KeyboardInterrupt):
        run_plan(plan(partitions=100_000), tmp_path / "log.jsonl", interrupt)
    log = logs.read(tmp_path / "log.jsonl")
    finished = ids(log.frame[log.frame.phase == "FINISH"])
    assert log.complete and log.trailer["ended"] == "interrupted" and 2 <= len(finished) < 100_000
    assert log.trailer["proofs"] == {"made": len(finished), "verified": len(finished)}


def test_ctrl_c_waits_for_the_partition_that_a_thread_is_at(
    work: FakeWork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.11 took the thread that was being joined for ended, and buffers were freed while it wrote into them."""
    begun, finished = threading.Event(), threading.Event()

    def slow(partition: int, out: np.ndarray, threads: int) -> None:
        if partition == 1:
            begun.set()
            time.sleep(0.5)
            finished.set()

    def interrupt() -> None:
        begun.wait(20)
        time.sleep(0.1)  # the main thread waits for synthesis
        os.kill(os.getpid(), signal.SIGINT)

    freed: list[bool] = []
    free = HostDevice.free_host_buffer
    monkeypatch.setattr(work, "synthesise", slow)
    monkeypatch.setattr(work, "prepare", lambda partition, buffer: partition)
    monkeypatch.setattr(HostDevice, "free_host_buffer", lambda *given: (freed.append(finished.is_set()), free(*given)))
    threading.Thread(target=interrupt).start()
    with pytest.raises(scheduler.RunInterrupted):
        run_plan(plan(partitions=200, synthesis_workers=1, verify=False), tmp_path / "log.jsonl")
    assert finished.is_set() and all(freed[1:])  # the first is that of the calibration
    assert not [one for one in threading.enumerate() if one.name.startswith(("synthesis", "worker", "verifier"))]
    assert logs.read(tmp_path / "log.jsonl").trailer["ended"] == "interrupted"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("can't start new thread")])
@pytest.mark.parametrize("last", ["worker 0", "worker 1", "verifier"])
def test_no_thread_outlives_a_run_whose_threads_could_not_all_start(
    last: str, error: BaseException, work: FakeWork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while the threads were being started left those that were waiting for ever, behind a closed device."""
    start = threading.Thread.start

    def stopping(thread: threading.Thread) -> None:
        if thread.name == last:
            raise error
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", stopping)
    with pytest.raises((RunFailed, scheduler.RunInterrupted)):
        run_plan(plan(partitions=200), tmp_path / "log.jsonl")
    assert not [one.name for one in threading.enumerate() if one.name.startswith(("synthesis", "worker", "verifier"))]
    assert logs.read(tmp_path / "log.jsonl").complete


def test_ctrl_c_while_a_log_is_finished_names_what_there_is(
    work: FakeWork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was a bare KeyboardInterrupt, and the rows lay in a file whose name nobody had been told."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(scheduler.RunInterrupted) as caught:
        run_plan(plan(), tmp_path / "log.parquet", convert=interrupted)
    assert logs.read(caught.value.path).trailer["ended"] == "done"
    monkeypatch.setattr(scheduler.Recorder, "close", interrupted)
    with pytest.raises(scheduler.RunInterrupted) as caught:
        run_plan(plan(), tmp_path / "cut.jsonl")
    assert caught.value.path == tmp_path / "cut.jsonl"


def test_rows_that_cannot_be_converted_stay_and_are_named(work: FakeWork, tmp_path: Path) -> None:
    """A disk that fills up while the Parquet file is made, or a run that ends before its first row."""

    def full(native: Path, final: Path) -> None:
        raise OSError("no space left")

    with pytest.raises(RunFailed, match="no space left") as caught:
        run_plan(plan(), tmp_path / "log.parquet", convert=full)
    assert [caught.value.path] == list(tmp_path.iterdir())
    assert logs.read(caught.value.path).trailer["ended"] == "done"


def test_a_disk_that_fills_up_ends_the_run_and_the_log_is_named(work: FakeWork, tmp_path: Path) -> None:
    """The error came without a path, so that nobody knew where the rows were."""

    def full(batch: object) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(RunFailed, match=r"No space left on device; the log of what was finished: .*log\.jsonl"):
        run_plan(plan(partitions=200), tmp_path / "log.jsonl", on_event=full)
    log = logs.read(tmp_path / "log.jsonl")
    assert not log.complete and len(log.frame)


def test_a_device_that_cannot_be_closed_hides_no_failure(
    work: FakeWork, math: Math, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def close(self: HostDevice) -> None:
        real_close(self)
        raise DeviceError("close", "device", "sticky")

    real_close, math.failing = HostDevice.close, {2}
    monkeypatch.setattr(HostDevice, "close", close)
    with pytest.raises(RunFailed, match="kernel of partition 2") as caught:
        run_plan(plan(), tmp_path / "log.jsonl")
    assert "sticky" in "".join(caught.value.__cause__.__notes__)
    math.failing.clear()
    with pytest.raises(DeviceError, match="sticky"):
        run_plan(plan(), tmp_path / "log.jsonl")


def test_a_progress_view_that_fails_ends_the_run(work: FakeWork, tmp_path: Path) -> None:
    def broken(stage: str, done: int, total: int) -> None:
        if stage == "partitions":
            raise OSError("the terminal is gone")

    with pytest.raises(RunFailed, match="the terminal is gone"):
        run_plan(plan(partitions=100_000), tmp_path / "log.jsonl", broken)
    assert logs.read(tmp_path / "log.jsonl").trailer["ended"] == "failed"


def test_progress_and_live_rows(work: FakeWork, tmp_path: Path) -> None:
    seen, rows = [], []
    run_plan(plan(), tmp_path / "log.jsonl", lambda *step: seen.append(step), on_event=rows.extend)
    assert seen[0] == ("keys", 1, 1) and seen[-2:] == [("synthesis", 7, 7), ("partitions", 7, 7)]
    assert len(rows) == len(logs.read(tmp_path / "log.jsonl").frame)


def test_parquet_is_made_by_the_converter_at_the_end(work: FakeWork, tmp_path: Path) -> None:
    path = run_plan(plan(), tmp_path / "log.parquet", convert=lambda native, final: logs.read(native).save(final))
    assert [file.name for file in tmp_path.iterdir()] == ["log.parquet"]
    assert logs.read(path).trailer["proofs"] == {"made": 7, "verified": 7}


def test_bad_input_is_told_before_any_work(work: FakeWork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_work(*_: object) -> None:
        raise AssertionError("work began")

    monkeypatch.setattr(FakeWork, "load", no_work)
    with pytest.raises(OSError, match="missing"):
        run_plan(plan(), tmp_path / "missing" / "log.jsonl")
    with pytest.raises(ValueError, match=r"log\.csv.*ends in \.jsonl"):
        run_plan(plan(), tmp_path / "log.csv")
    with pytest.raises(ValueError, match=r"log\.parquet.*ends in \.jsonl"):
        run_plan(plan(), tmp_path / "log.parquet")  # nobody who could convert
    monkeypatch.setattr(memory, "available_host_bytes", lambda: 10)
    with pytest.raises(MemoryError, match=r"host memory: [\d,]+ bytes needed, 10 available"):
        run_plan(plan(), tmp_path / "log.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_timed_kernels_on_the_host_are_an_error_that_leaves_an_old_log_alone(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("old")
    with pytest.raises(ValueError, match="timed:SECONDS: not on the host device"):
        run_plan(plan(kernels="timed:0.01", log2_size=8), path)
    assert path.read_text() == "old"


def test_model_is_no_device_of_the_prover(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="device 'model'"):
        run_plan(plan(device="model"), tmp_path / "log.jsonl")


def test_the_workers_lock_is_free_after_a_failure(work: FakeWork, math: Math, tmp_path: Path) -> None:
    held = []
    prove = Worker.prove

    def spied(self: Worker, flight: Any) -> None:
        try:
            prove(self, flight)
        finally:
            held.append(self._lock._held)

    math.failing = {1}  # the set-up has run partition 0 already
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Worker, "prove", spied)
        with pytest.raises(RunFailed):
            run_plan(plan(lock="coarse", workers=1), tmp_path / "log.jsonl")
    assert held == [False, False]


def test_timed_kernels_say_so_everywhere_and_prove_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Spinning(HostDevice):
        """A device that has a spin kernel."""

        def spin(self, stream: Any, seconds: float) -> None:
            stream.run(Lane.COMPUTE, "spin", f"{seconds} s", lambda: time.sleep(seconds))

    monkeypatch.setattr(scheduler, "open_device", lambda spec, gpu: Spinning(gpu, math=Math()))
    seen: list[str] = []
    path = run_plan(
        plan(kernels="timed:0.01", log2_size=8), tmp_path / "log.jsonl", lambda stage, *_: seen.append(stage)
    )
    log = logs.read(path)
    assert log.header["kernels"] == "timed" and TIMED_LABEL in log.header["labels"] and log.header["seed"] is None
    assert log.trailer["ended"] == "done" and log.trailer["proofs"] is None and "VERIFY" not in set(log.frame.phase)
    kernels = log.frame[log.frame.phase == "KERNEL"]
    assert set(kernels.name) == {"spin"} and ids(kernels) == list(range(7))
    assert (kernels.end_ns - kernels.start_ns >= 10_000_000).all()
    uploads = log.frame[log.frame.phase == "H2D"]
    assert (uploads.groupby("partition").bytes.sum() == 3 * 32 * 256).all()  # a, b, c: no MSM, so no witness
    for phase, seconds in (("PREP", TIMED_PREP * 0.01), ("FINISH", TIMED_FINISH * 0.01)):
        rows = log.frame[log.frame.phase == phase]
        assert (rows.end_ns - rows.start_ns >= seconds * 1e9).all()


def test_the_cpu_load_runs_beside_the_run_where_it_is_not_emulated() -> None:
    class Link:
        emulates_load = False

        def line_rate(self) -> dict[str, float]:
            names = [thread.name for thread in threading.enumerate() if thread.name.startswith("load ")]
            return {"H2D": float(len(names)), "D2H": 0.0}

    def rates(cpu_load: int, stack: ExitStack) -> dict[str, float]:
        return scheduler._line_rates(Link(), cpu_load, stack)["H2D"]

    with ExitStack() as stack:
        assert rates(2, stack) == {"idle": 0.0, "loaded": 2.0}
        assert Link().line_rate()["H2D"] == 2.0  # it goes on
    with ExitStack() as stack:
        rates(0, stack)  # the loaded rate is measured in any case,
        assert Link().line_rate()["H2D"] == 0.0  # the run stays as the plan wants it
    with ExitStack() as stack:
        Link.emulates_load = True
        assert rates(2, stack) == {"idle": 0.0, "loaded": 0.0}


def test_blinding_is_the_systems_unless_the_plan_has_a_seed() -> None:
    def blinding(seed: int | None, partition: int) -> tuple[int, ...]:
        work = Groth16(plan(seed=seed, log2_size=8))
        return tuple(work.prepare(partition, np.zeros(work.nbytes, np.uint8))[1:])

    assert blinding(1, 2) == blinding(1, 2)
    drawn = [blinding(1, 2), blinding(1, 3), blinding(2, 2), blinding(None, 2), blinding(None, 2)]
    assert len({value for pair in drawn for value in pair}) == 10  # r and s of five partitions
    assert all(0 <= value < curve.r for pair in drawn for value in pair)
    assert Groth16(plan(log2_size=8)).seed != Groth16(plan(log2_size=8)).seed  # a witness of its own for each run


# -- real proofs


@pytest.mark.parametrize("memory_name", MEMORIES)
def test_real_proofs_and_emulated_ratios_vs_the_header(tmp_path: Path, memory_name: str) -> None:
    chosen = plan(log2_size=8, partitions=3, memory=memory_name, cpu_load=1, seed=5)
    log = logs.read(run_plan(chosen, tmp_path / "log.jsonl"))
    assert log.trailer["proofs"] == {"made": 4, "verified": 4}
    assert "emulated link and CPU stages" in log.header["labels"] and log.header["seed"] == 5
    assert RunPlan.from_mapping(log.header["plan"]).synthesis_workers == 1
    emulation, frame = log.header["emulation"], log.frame
    kernel_ns, shares = emulation["kernel_ns"], emulation["transfer_shares"]
    assert shares == {"PINNED": 0.13, "REGISTERED": 0.13, "STAGED": 0.13, "PAGEABLE": 2.4}
    rate = log.header["line_rate_gb_s"]["H2D"]["idle"]
    assert rate == pytest.approx(emulation["partition_bytes"] / (0.13 * kernel_ns))
    uploads = frame[frame.phase == "H2D"]
    assert (uploads.groupby("partition").bytes.sum() == emulation["partition_bytes"]).all()
    # pacing is exact from below: no copy and no stage is faster than its share; how much slower is the machine's load
    share = shares[MEMORIES[memory_name].value]
    taken = (uploads.end_ns - uploads.start_ns) / kernel_ns
    assert (taken >= share * uploads.bytes / emulation["partition_bytes"] - 1e-4).all()
    for phase, name in (("PREP", "prep"), ("FINISH", "finish"), ("ALLOC", "register"), ("ALLOC", "unregister")):
        rows = frame[(frame.phase == phase) & (frame.name == name)]
        assert (rows.end_ns - rows.start_ns >= emulation["cpu_shares"][name] * kernel_ns - 1).all()
    measured = taken.groupby(uploads.partition).sum().median()
    print(f"{memory_name}: the copies of a partition take {measured:.3f} of its kernel time, stated {share}")


def test_kernel_rows_are_arithmetic_and_not_waiting(tmp_path: Path) -> None:
    frame = logs.read(run_plan(plan(log2_size=10, partitions=4), tmp_path / "log.jsonl")).frame
    cpu_s = frame[frame.name == "compute.cpu_seconds"].value
    kernels = frame[frame.phase == "KERNEL"]
    share = (cpu_s.max() - cpu_s.min()) * 1e9 / (kernels.end_ns - kernels.start_ns).sum()
    print(f"CPU time of KERNEL rows: {share:.1%} of their duration")
    assert share > 0.1  # an idle machine reaches 0.9; one that eight runs share, an eighth of it


def test_a_killed_run_leaves_a_readable_log(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    program = (
        "from pathlib import Path; from cuzkbench.plan import RunPlan; from cuzkbench.prover.scheduler import run_plan;"
        f"run_plan(RunPlan(device='host', log2_size=8, partitions=1000000), Path({str(path)!r}))"
    )
    child = subprocess.Popen([sys.executable, "-c", program], cwd=Path(__file__).parents[1])
    deadline = time.monotonic() + 120
    while child.poll() is None and time.monotonic() < deadline:
        if path.exists() and path.read_bytes().count(b'"FINISH"') > 3:
            break
        time.sleep(0.02)
    assert child.poll() is None, "the run ended by itself"
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    log = logs.read(path)
    assert not log.complete and log.cut_at is not None
    assert len(ids(log.frame[log.frame.phase == "FINISH"])) > 3
    assert json.loads(path.read_text().splitlines()[0])["header"]["plan"]["partitions"] == 1_000_000
