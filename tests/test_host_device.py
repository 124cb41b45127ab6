"""The host device against what a GPU guarantees: stream order, one engine a lane, events, pacing, errors."""

import threading
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cuzkbench.device import cuda_missing, open_device
from cuzkbench.device.host import CPU_SHARES, LABEL, PAGEABLE_SHARE, PINNED_SHARE, HostDevice
from cuzkbench.events import DeviceError, Memory

KERNEL_NS = 40_000_000
NBYTES = 1 << 20


class Math:
    """Arithmetic whose kernels note that they ran, and block where a test says so."""

    def __init__(self) -> None:
        self.ran: list[int] = []
        self.gate = threading.Event()
        self.gate.set()

    def ntt(self, values: np.ndarray, log2_size: int, **_: bool) -> None:
        assert self.gate.wait(20)
        if log2_size == 13:
            raise ArithmeticError("thirteen")
        self.ran.append(log2_size)
        values[:1] += 1

    def points(self, group: str, bases: np.ndarray) -> list[str]:
        return [group] * len(bases)

    def msm(self, group: str, points: list[str], scalars: np.ndarray, count: int) -> bytes:
        return bytes([len(points) % 256, count]).ljust(96 if group == "g1" else 192, b"\0")


@pytest.fixture
def math() -> Math:
    return Math()


@pytest.fixture
def device(math: Math) -> Any:
    device = HostDevice(math=math)
    yield device
    math.gate.set()
    device.close()


def calibrate(device: HostDevice, loaded: bool = True) -> dict[str, Any]:
    return device.calibrate([lambda: KERNEL_NS], NBYTES, loaded)


def timed(device: HostDevice, stream: Any, memory: Memory, nbytes: int = NBYTES) -> tuple[Any, Any]:
    """Queue one upload between two events."""
    start = stream.record()
    device.upload(stream, device.buffer(nbytes), np.ones(nbytes, np.uint8), memory)
    return start, stream.record()


def test_a_stream_runs_in_order_and_a_wait_joins_two(device: HostDevice, math: Math) -> None:
    first, second, values = device.stream(), device.stream(), device.buffer(8)
    math.gate.clear()
    device.ntt(first, values, 1)
    device.ntt(first, values, 2)
    joined = first.record()
    second.wait(joined)
    device.ntt(second, values, 3)
    done = second.record()
    assert not joined.passed and not done.passed and math.ran == []
    math.gate.set()
    second.synchronize()
    assert math.ran == [1, 2, 3] and values.array[0] == 3
    assert joined.time_ns() <= done.time_ns()


def test_copies_move_the_bytes_both_ways(device: HostDevice) -> None:
    calibrate(device)
    stream, source = device.stream(), np.random.default_rng(1).integers(0, 256, 300_001, dtype=np.uint8)
    target, back = device.buffer(300_101), device.host_buffer(300_001, Memory.PINNED)
    device.upload(stream, target.view(100, 300_001), source, Memory.PAGEABLE)
    device.download(stream, back.array, target.view(100, 300_001))
    stream.synchronize()
    assert (back.array == source).all() and not target.array[:100].any()


def test_copies_are_paced_to_the_shares_of_the_kernel_time(device: HostDevice) -> None:
    # a sleep can only be too long, so the least time is exact; tests assert no upper one
    for loaded, share in PAGEABLE_SHARE.items():
        emulation = calibrate(device, loaded)
        assert emulation["transfer_shares"] == {
            "PINNED": PINNED_SHARE,
            "REGISTERED": PINNED_SHARE,
            "STAGED": PINNED_SHARE,
            "PAGEABLE": share,
        }
        for memory in (Memory.PINNED, Memory.PAGEABLE, Memory.REGISTERED, Memory.STAGED):
            start, end = timed(device, device.stream(), memory)
            least = emulation["transfer_shares"][memory.value] * KERNEL_NS
            assert end.time_ns() - start.time_ns() >= least - 1
    rate = device.line_rate()
    assert rate["H2D"] == rate["D2H"] == pytest.approx(NBYTES / (PINNED_SHARE * KERNEL_NS))


def test_two_copies_share_the_one_engine_one_after_the_other(device: HostDevice) -> None:
    calibrate(device)
    pairs = [timed(device, device.stream(), Memory.PAGEABLE) for _ in range(2)]
    (a, b), (c, d) = [(start.time_ns(), end.time_ns()) for start, end in pairs]
    each = PAGEABLE_SHARE[True] * KERNEL_NS
    assert a <= c < b  # both were queued at once: as on a GPU, the second row holds the wait for the engine
    assert b - a >= each - 1 and d - b >= each - 1


def test_each_way_and_compute_have_engines_of_their_own(device: HostDevice, math: Math) -> None:
    math.gate.clear()  # the compute engine is blocked
    device.ntt(device.stream(), device.buffer(8), 1)
    stream, pinned = device.stream(), device.host_buffer(64, Memory.PINNED)
    device.upload(stream, device.buffer(64), pinned.array, Memory.PINNED)
    device.download(stream, pinned.array, device.buffer(64))
    stream.synchronize()
    assert math.ran == []


def test_a_kernel_row_starts_after_its_streams_last_wait(device: HostDevice) -> None:
    calibrate(device)
    upload, compute = device.stream(), device.stream()
    _, uploaded = timed(device, upload, Memory.PAGEABLE)  # lasts 2.4 * 40 ms
    compute.wait(uploaded)
    start = compute.record()
    device.ntt(compute, device.buffer(8), 1)
    end = compute.record()
    compute.synchronize()
    assert uploaded.time_ns() <= start.time_ns() <= end.time_ns()


def test_a_failed_operation_is_told_once_and_what_follows_is_skipped(device: HostDevice, math: Math) -> None:
    stream, values = device.stream(), device.buffer(8)
    device.ntt(stream, values, 13)
    device.ntt(stream, values, 4)
    with pytest.raises(DeviceError, match=r"ntt \(2\^13\): ArithmeticError: thirteen"):
        stream.synchronize()
    assert math.ran == []
    device.ntt(stream, values, 5)
    stream.synchronize()
    assert math.ran == [5]


def test_msm_of_a_loaded_key_and_of_plain_bases(device: HostDevice) -> None:
    queries = {name: np.zeros((3, 96), np.uint8) for name in ("h", "l", "a", "b_g1")}
    key = device.load_key(SimpleNamespace(**queries, b_g2=np.zeros((2, 192), np.uint8)))
    stream, scalars = device.stream(), device.buffer(64)
    for group, bases, points in (("g1", key.h, 288), ("g2", key.b_g2, 384), ("g1", device.buffer(96), 96)):
        result = device.buffer(device.msm_bytes(group, 2))
        device.msm(stream, group, bases, scalars, 2, result)
        host = device.host_buffer(result.nbytes, Memory.PINNED)
        device.download(stream, host.array, result)
        stream.synchronize()
        assert device.finish_msm(group, 2, host.array)[:2] == bytes([points % 256, 2])


def test_cpu_stages_last_their_share(device: HostDevice) -> None:
    assert device.emulated_ns("prep") == 0  # nothing is emulated before the kernel time is known
    emulation = calibrate(device)
    assert emulation["cpu_shares"] == CPU_SHARES and (CPU_SHARES["prep"], CPU_SHARES["finish"]) == (0.23, 0.17)
    assert device.emulated_ns("prep") == round(0.23 * KERNEL_NS)
    assert device.emulated_ns("stage", NBYTES // 4) == round(CPU_SHARES["stage"] * KERNEL_NS / 4)
    assert device.emulated_ns("kernels") == 0


def test_wrong_use_is_told(device: HostDevice) -> None:
    with pytest.raises(ValueError, match="timed:SECONDS: not on the host device"):
        device.spin(device.stream(), 1.0)
    with pytest.raises(ValueError, match="65 bytes into a buffer of 64"):
        device.upload(device.stream(), device.buffer(64), np.zeros(65, np.uint8), Memory.PINNED)
    with pytest.raises(ValueError, match="view 60"):
        device.buffer(64).view(60, 5)
    with pytest.raises(ValueError, match="PAGEABLE or PINNED"):
        device.host_buffer(1, Memory.STAGED)
    buffer = device.host_buffer(8, Memory.PAGEABLE)
    device.register(buffer)
    with pytest.raises(ValueError, match="already locked"):
        device.register(buffer)
    device.unregister(buffer)
    with pytest.raises(ValueError, match="not registered"):
        device.unregister(buffer)
    with pytest.raises(RuntimeError, match="before calibrate"):
        device.line_rate()


def test_open_device_says_what_it_chose_and_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cuzkbench.device.cuda_missing", lambda: "no NVIDIA GPU was found")
    chosen, asked = open_device("auto"), open_device("host", 1)
    assert chosen.labels == (LABEL, "no GPU used: no NVIDIA GPU was found") and asked.labels == (LABEL,)
    assert chosen.kind == "emulated" and asked.gpu == asked.describe()["gpu"] == 1
    for device in (chosen, asked):
        device.close()
    with pytest.raises(ValueError, match="device cuda:1: no NVIDIA GPU was found"):
        open_device("cuda:1")
    with pytest.raises(ValueError, match="device 'tpu': auto, host, cuda or cuda:N"):
        open_device("tpu")


def test_cuda_missing_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cuzkbench.device.find_spec", lambda name: None)
    assert "pip install 'cuzkbench[gpu]'" in str(cuda_missing())


def test_host_waits_wake_within_the_run(device: HostDevice, math: Math) -> None:
    waits = []
    for _ in range(200):
        stream = device.stream()
        device.ntt(stream, device.buffer(8), 1)
        end = stream.record()
        stream.synchronize()
        waits.append(time.perf_counter_ns() - end.time_ns())
    print(f"from a kernel's end to its waiter: median {sorted(waits)[100] / 1e3:.0f} us")
    assert len(math.ran) == 200 and min(waits) > 0
