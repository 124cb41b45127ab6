"""The GPU lock against the order of asking, with every thread's turn forced."""

import threading
import time
from itertools import pairwise

from cuzkbench.events import Phase
from cuzkbench.prover.lock import FifoLock, Warmup
from cuzkbench.timing import Recorder

THREADS = 6


def rows(recorder: Recorder, phase: Phase) -> list[tuple[int, int, int]]:
    """(start, end, worker) of a phase, by start."""
    return sorted((row[4], row[5], row[0].worker) for row in recorder.rows if row[1] is phase)


def test_lock_order_vs_order_of_asking() -> None:
    recorder, lock, order = Recorder(), FifoLock(Warmup(0)), []
    owner = recorder.scope("proof", 0, 0, 99)
    lock.acquire(owner)

    def take(worker: int) -> None:
        scope = recorder.scope("proof", worker, 0, worker)
        lock.acquire(scope)
        order.append(worker)
        lock.release(scope)

    threads = []
    for worker in range(THREADS):
        threads.append(threading.Thread(target=take, args=(worker,)))
        threads[-1].start()
        while len(lock._waiting) <= worker:  # it has asked before the next one starts
            time.sleep(0.001)
    lock.release(owner)
    for thread in threads:
        thread.join()
    assert order == list(range(THREADS))
    assert [worker for _, _, worker in rows(recorder, Phase.LOCK_HOLD)] == [99, *range(THREADS)]


def test_a_worker_that_asks_again_goes_behind_the_one_that_waits() -> None:
    recorder, lock, order = Recorder(), FifoLock(Warmup(0)), []

    def work(worker: int) -> None:
        scope = recorder.scope("proof", 0, 0, worker)
        for _ in range(50):
            lock.acquire(scope)
            order.append(worker)
            while not lock._waiting and order.count(1 - worker) < 50:  # until the other one waits or is done
                time.sleep(0.0001)
            lock.release(scope)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(order) == 100 and all(a != b for a, b in pairwise(order))


def test_holds_never_overlap_and_waits_end_where_holds_begin() -> None:
    recorder, lock, inside, worst = Recorder(), FifoLock(Warmup(0)), [0], [0]

    def work(worker: int) -> None:
        scope = recorder.scope("proof", 0, 0, worker)
        for _ in range(100):
            lock.acquire(scope)
            inside[0] += 1
            worst[0] = max(worst[0], inside[0])
            inside[0] -= 1
            lock.release(scope)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    holds, waits = rows(recorder, Phase.LOCK_HOLD), rows(recorder, Phase.LOCK_WAIT)
    assert worst[0] == 1 and len(holds) == len(waits) == 100 * THREADS
    assert all(first[1] <= second[0] for first, second in pairwise(holds))
    assert {(end, worker) for _, end, worker in waits} == {(start, worker) for start, _, worker in holds}


def test_no_measured_partition_gets_a_lock_before_the_warmup() -> None:
    """Partition 1 proved first, the warm-up second: eleven intervals held twelve turns, and cadence read 9 % long."""
    recorder, warmup, order = Recorder(), Warmup(2), []
    locks = [FifoLock(warmup), FifoLock(warmup)]  # of two GPUs

    def take(partition: int) -> None:
        scope = recorder.scope("proof", partition, 0, partition, warmup=partition < 2)
        locks[partition % 2].acquire(scope)
        order.append(partition)
        locks[partition % 2].release(scope)

    measured = [threading.Thread(target=take, args=(partition,)) for partition in (2, 3)]
    for thread in measured:
        thread.start()
    take(0)
    assert order == [0]
    take(1)
    for thread in measured:
        thread.join()
    assert order[:2] == [0, 1] and sorted(order[2:]) == [2, 3]


def test_a_run_that_stops_holds_nobody_back() -> None:
    recorder, warmup = Recorder(), Warmup(1)
    thread = threading.Thread(target=FifoLock(warmup).acquire, args=(recorder.scope("proof", 1),))
    thread.start()
    warmup.stop()
    thread.join(20)
    assert not thread.is_alive()
