"""Host memory of the partitions in flight: reuse, waiting, and the same bytes on the device under every policy."""

import threading
import time
from typing import Any

import numpy as np
import pytest

from cuzkbench.device.host import HostDevice
from cuzkbench.events import Memory, Phase
from cuzkbench.prover import memory
from cuzkbench.prover.handoff import Handoff, Stopped
from cuzkbench.prover.memory import POLICIES, RING_CHUNK_LEAST, Pool, check_fits
from cuzkbench.stages import MEMORIES, stages
from cuzkbench.timing import Recorder

NBYTES = 5 * RING_CHUNK_LEAST + 33  # no multiple of the ring's chunk or of the staging threads


@pytest.fixture
def device() -> Any:
    device = HostDevice(math=object())
    yield device
    device.close()


def phases(recorder: Recorder) -> list[str]:
    return [f"{row[1]} {row[3]}" for row in recorder.rows]


def test_pool_hands_out_buffers_of_the_exact_size_again_and_again(device: HostDevice) -> None:
    recorder = Recorder()
    pool, scope = (
        Pool(
            device,
            Memory.PINNED,
            NBYTES,
        ),
        recorder.scope("proof", 0),
    )
    pool.fill(3, scope)
    first, second = pool.checkout(scope), pool.checkout(scope)
    assert first.array.nbytes == second.array.nbytes == NBYTES and first.memory is Memory.PINNED
    assert not np.shares_memory(first.array, second.array)
    pool.checkin(first)
    assert pool.checkout(scope) is first
    assert pool.counters() == {
        "high_water_bytes": 2 * NBYTES,
        "high_water_buffers": 2,
        "allocated": 3,
        "reused": 1,
    }
    assert phases(recorder) == ["ALLOC make"] * 3  # nobody waited


def test_who_waits_for_a_buffer_is_recorded_and_served(device: HostDevice) -> None:
    recorder, got = Recorder(), []
    pool = Pool(device, Memory.PAGEABLE, 64)
    pool.fill(1, recorder.scope("proof", -1))
    only = pool.checkout(recorder.scope("proof", 0))
    waiter = threading.Thread(target=lambda: got.append(pool.checkout(recorder.scope("proof", 1))))
    waiter.start()
    while not pool._changed._waiters:  # it waits
        time.sleep(0.001)
    released_ns = recorder.clock()
    pool.checkin(only)
    waiter.join()
    assert got == [only]
    scope, phase, _, name, start_ns, end_ns = recorder.rows[-1]
    assert (scope.partition, scope.gpu, scope.worker, phase, name) == (1, -1, -1, Phase.ALLOC, "buffer")
    assert start_ns < released_ns < end_ns


def test_whoever_waits_when_the_run_ends_gives_up(device: HostDevice) -> None:
    pool, queue, gave_up = Pool(device, Memory.PINNED, 64), Handoff[int](1), []
    queue.put(1)

    def wait(call: Any) -> None:
        with pytest.raises(Stopped):
            call()
        gave_up.append(call)

    calls = [lambda: pool.checkout(Recorder().scope("proof", 0)), lambda: queue.put(2)]
    threads = [threading.Thread(target=wait, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    pool.stop()
    queue.end(early=True)
    for thread in threads:
        thread.join()
    assert len(gave_up) == 2 and queue.get() is None


def test_queue_order_and_end() -> None:
    queue = Handoff[int](3)
    for item in range(3):
        queue.put(item)
    queue.end()
    assert [queue.get() for _ in range(4)] == [0, 1, 2, None]


def test_the_first_items_are_put_before_any_other() -> None:
    queue = Handoff[int](2, first=1)
    late = threading.Thread(target=queue.put, args=(2,))
    late.start()
    queue.put(1, first=True)
    assert [queue.get(), queue.get()] == [1, 2]
    late.join()


def test_there_is_a_policy_for_every_name_and_its_rows_say_it() -> None:
    assert list(POLICIES) == list(MEMORIES)
    assert {name: policy.kind for name, policy in POLICIES.items()} == MEMORIES
    for name, policy in POLICIES.items():
        assert policy.last_use in [stage.name for stage in stages("narrow", name)]


@pytest.mark.parametrize("name", POLICIES)
def test_upload_vs_source_bytes(device: HostDevice, name: str) -> None:
    recorder, source = Recorder(), np.random.default_rng(7).integers(0, 256, NBYTES, dtype=np.uint8)
    scope, target = recorder.scope("proof", 0, 0, 0), device.buffer(NBYTES)
    buffer = device.host_buffer(NBYTES, POLICIES[name].made_of)
    buffer.array[:] = source
    copies = POLICIES[name](device, device.stream(), NBYTES)
    if name == "registered":
        device.register(buffer)
        with pytest.raises(ValueError, match="already locked"):
            device.register(buffer)
    copies.upload(scope, target, buffer.array, "a")
    assert not [row for row in recorder.rows if row[1] is Phase.H2D]  # no row before the copy is known to be done
    copies.finish(scope)
    if name == "registered":
        device.unregister(buffer)
    copies.close()
    assert (target.array == source).all()
    uploads = [row for row in recorder.rows if row[1] is Phase.H2D]
    assert sum(row[6] for row in uploads) == NBYTES
    assert {row[7] for row in uploads} == {MEMORIES[name]}
    chunks = -(-NBYTES // (NBYTES // 4)) if name == "staged" else 1
    assert len(uploads) == chunks
    assert phases(recorder).count("STAGE ring") == (chunks if name == "staged" else 0)


def test_memory_is_checked_with_the_bytes_needed(device: HostDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_host_bytes", lambda: 1_000_000)
    check_fits(600_000, 400_000, [device])  # the host device's memory is the host's
    with pytest.raises(MemoryError, match="host memory: 1,000,001 bytes needed, 1,000,000 available"):
        check_fits(600_001, 400_000, [device])
    with pytest.raises(MemoryError, match="host memory: 1,000,001 bytes"):
        check_fits(200_001, 400_000, [device, device])
    monkeypatch.setattr(device, "available_bytes", lambda: 500)
    with pytest.raises(MemoryError, match="device memory: 501 bytes needed, 500 available"):
        check_fits(0, 501, [device])
    monkeypatch.setattr(memory, "available_host_bytes", lambda: None)
    check_fits(1 << 60, 500, [device])  # a system that does not say


def test_available_memory_vs_all_there_is(device: HostDevice) -> None:
    available = memory.available_host_bytes()
    assert available is not None and 0 < available <= device.describe()["memory_bytes"]
