"""The CUDA device without a GPU: its calls on a pretended CuPy, its kernels built by the host's compiler."""

from __future__ import annotations

import mmap
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cuzkbench import doctor
from cuzkbench.device import cuda_missing, cuda_sequence, open_device
from cuzkbench.device.cuda_clock import Anchor
from cuzkbench.device.kernels import loader
from cuzkbench.events import DeviceError, Memory
from cuzkbench.logs import read
from cuzkbench.plan import RunPlan
from cuzkbench.prover import keys
from cuzkbench.prover.circuit import Circuit
from cuzkbench.prover.scheduler import run_plan
from tests.fake_cupy import CapturingLauncher, Fake
from tests.kernels_on_host import needs_compiler


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    made = Fake()
    monkeypatch.setitem(sys.modules, "cupy", made.module)
    monkeypatch.setattr(loader, "CupyLauncher", lambda index: CapturingLauncher(made))
    monkeypatch.setattr(cuda_sequence, "_driver", lambda: made)
    return made


@needs_compiler
@pytest.mark.parametrize(("memory", "lock"), [("pinned", "narrow"), ("pageable", "device"), ("staged", "coarse")])
def test_proofs_of_the_device_vs_the_pairing_check(fake: Fake, tmp_path: Path, memory: str, lock: str) -> None:
    plan = RunPlan(device="cuda", log2_size=8, partitions=2, workers=1, memory=memory, lock=lock, seed=4)
    keys.load(Circuit.of(plan), plan.key_seed)  # made by the host: the pretended GPU would take minutes
    log = read(run_plan(plan, tmp_path / "run.jsonl"))
    assert log.trailer["proofs"] == {"made": 3, "verified": 3}
    assert log.header["device_kind"] == "cuda" and log.header["labels"] == []
    rows = log.frame[log.frame["partition"] >= 0]
    assert set(rows.loc[rows["phase"] == "H2D", "memory"]) == {memory.upper()}
    kernels = rows[rows["phase"] == "KERNEL"]
    assert kernels.groupby("partition").size().tolist() == [13, 13, 13]
    assert (kernels["clock"] == "DEVICE").all()
    uploads = rows[rows["phase"] == "H2D"]
    for partition, part in kernels.groupby("partition"):
        assert part["start_ns"].min() >= uploads.loc[uploads["partition"] == partition, "end_ns"].max() - 20_000
    assert uploads.groupby("partition")["bytes"].sum().nunique() == 1


def test_a_pretended_gpu_counts_as_one(fake: Fake) -> None:
    assert cuda_missing() is None


def test_device_memory_is_given_back(fake: Fake) -> None:
    before = len(fake.memory)
    device = open_device("cuda")
    pinned = device.host_buffer(1000, Memory.PINNED)
    there = device.buffer(1000)
    device.buffer(50)
    pinned.array[:] = np.arange(1000) % 251
    stream, back = device.stream(), device.host_buffer(1000, Memory.PINNED)
    device.upload(stream, there, pinned.array, Memory.PINNED)
    device.download(stream, back.array, there)
    assert (back.array == pinned.array).all()
    for buffer in (pinned, back):
        device.free_host_buffer(buffer)
    device.free(there)
    device.close()
    assert len(fake.memory) == before


def test_errors_carry_the_call_its_shape_and_the_drivers_words(fake: Fake) -> None:
    device = open_device("cuda")
    there, source = device.buffer(64), np.zeros(64, np.uint8)
    with pytest.raises(ValueError, match="64 bytes into a device buffer of 8"):
        device.upload(device.stream(), there.view(0, 8), source, Memory.PAGEABLE)
    with pytest.raises(MemoryError, match="GiB of device memory needed"):
        device.buffer(1 << 40)
    fake.fail_copies = True
    with pytest.raises(DeviceError, match=r"memcpyAsync host to device \(64 bytes\).*illegal memory access"):
        device.upload(device.stream(), there, source, Memory.PAGEABLE)
    device.close()


def test_a_sequence_is_captured_once_and_timed_between_its_steps(fake: Fake) -> None:
    device = open_device("cuda")
    stream, there, source = device.stream(), device.buffer(64), np.ones(64, np.uint8)
    steps = [lambda s: device.upload(s, there, source, Memory.PINNED)] * 2
    sequence = device.sequence(stream, steps, timed=True)
    for launched in (1, 2):
        sequence.launch()
        times = sequence.times_ns()
        assert len(times) == 3 and times == sorted(times)
        assert len(fake.copies) == 2 * launched
    untimed = device.sequence(stream, steps, timed=False)
    untimed.launch()
    assert untimed.times_ns() == []
    device.close()


def test_the_first_marks_lie_behind_an_empty_kernel(fake: Fake) -> None:
    """Rows of first kernels began up to 82 µs before CUPTI's record of them: a graph's start-up lay behind the mark."""
    device = open_device("cuda")
    launched = device.kernels.launcher.launches
    stream, steps = device.stream(), [lambda s: launched.append(("step", (), 0))]
    sequence = device.sequence(stream, steps, timed=True, kernels=True)
    sequence.prepare()
    assert [kernel for kernel, _, _ in launched] == ["nothing", "step", "nothing"]  # loaded, captured, launched
    sequence.launch()
    assert [kernel for kernel, _, _ in launched[3:]] == ["nothing"] and len(sequence.times_ns()) == 2
    device.close()


def test_an_anchor_waits_until_the_one_in_force_has_aged_as_much() -> None:
    """Brackets beside pinned copies took up to 84 µs, and five captures gave bounds of 20 to 42 µs because of them."""
    tight = Anchor(None, host_ns=0, bound_ns=5_000, device_ns=0.0)
    for seconds, bound_ns, taken in ((1, 15_000, True), (1, 29_000, False), (3, 29_000, True)):
        at_ns = seconds * 1_000_000_000
        assert Anchor(None, at_ns, bound_ns, float(at_ns)).beats(tight) is taken
    assert tight.error_ns(1e9, drift=-4e-6) == 9_000


def cuda_event(seconds: float) -> SimpleNamespace:
    return SimpleNamespace(at=seconds)


def test_the_bound_of_the_clock_counts_the_ages_of_placed_events(fake: Fake) -> None:
    """Renewals waited 15 s for the driver while it page-locked memory, and the bound said 82 µs of rows made later."""
    device = open_device("cuda")
    clock = device.clock
    clock.close()
    second = 1_000_000_000
    clock.anchors = [Anchor(cuda_event(0), 0, 5_000, 0.0), Anchor(cuda_event(20), 20 * second, 6_000, 20.00008e9)]
    clock._ages.clear()
    assert clock.fit()["bound_ns"] == 6_000 and clock.fit()["drift_ppm"] == pytest.approx(4.0)
    assert clock.host_ns(clock.anchors[1], cuda_event(23)) == 23 * second
    assert clock.host_ns(clock.anchors[1], cuda_event(21)) == 21 * second
    assert clock.fit()["bound_ns"] == pytest.approx(6_000 + 3 * 4_000)
    device.close()


def test_marks_use_events_that_exist(fake: Fake) -> None:
    """Workers stood still for 0.7 s: making an event waits for the lock that another one's pageable copy holds."""
    device = open_device("cuda")
    stream, made = device.stream(), len(fake.events)
    for _ in range(3 * made):
        marks = [stream.record() for _ in range(8)]
        stream.wait(marks[0])
        assert marks[0].time_ns() <= marks[-1].time_ns()
    assert len(fake.events) == made
    held = [stream.record() for _ in range(made + 1)]  # more than there are: new ones, used again from then on
    more = len(fake.events)
    del held
    assert len({id(stream.record().event) for _ in range(3)}) == 1 and len(fake.events) == more > made
    device.close()


def test_heap_buffers_begin_with_a_page(fake: Fake) -> None:
    device = open_device("cuda")
    for nbytes in (1, 4095, 1 << 20):
        buffer = device.host_buffer(nbytes, Memory.PAGEABLE)
        assert buffer.array.ctypes.data % mmap.PAGESIZE == 0 and buffer.array.nbytes == nbytes
    device.close()


def test_doctor_measures_every_kind_of_copy(fake: Fake) -> None:
    device = open_device("cuda")
    found = doctor.bandwidths(device, nbytes=1 << 16)
    kinds = {f"{memory} {way}" for memory in ("pinned", "pageable") for way in ("H2D", "D2H")} | {"pinned both ways"}
    assert set(found) == {"idle", "loaded"} and all(set(rates) == kinds for rates in found.values())
    assert all(rate > 0 for rates in found.values() for rate in rates.values())
    device.close()
