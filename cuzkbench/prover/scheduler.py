"""From a plan to its log: synthesis workers feed a bounded queue, GPU workers prove, a verifier checks every proof.

The run ends in order whatever happens: a failing thread or Ctrl-C lets the others finish the partition that they are
at, and everything finished is on disk with a trailer that says how it ended.
"""

from __future__ import annotations

import os
import secrets
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from cuzkbench import outputs
from cuzkbench.device import RunDevice, open_device
from cuzkbench.events import Event, Lane, Memory, Phase
from cuzkbench.plan import RunPlan
from cuzkbench.progress import Progress, silent
from cuzkbench.prover.handoff import Handoff, Stopped
from cuzkbench.prover.header import header, run_id
from cuzkbench.prover.load import CpuLoad
from cuzkbench.prover.lock import FifoLock, Warmup
from cuzkbench.prover.memory import POLICIES, Pool, check_fits
from cuzkbench.prover.work import Work, work_of
from cuzkbench.prover.worker import Flight, Worker
from cuzkbench.timing import Recorder

POLL_S = 0.1  # of the main thread: progress, counters, failures
SWITCH_S = 0.001  # a thread that hogs the interpreter gives it up after that long during runs (Python's own: 5 ms)


class RunFailed(RuntimeError):
    """A run that ended early; `path` is the log of what was finished by then."""

    def __init__(self, message: str, path: Path) -> None:
        super().__init__(message, path)
        self.path = path

    def __str__(self) -> str:
        return f"{self.args[0]}; the log of what was finished: {self.path}"


class RunInterrupted(KeyboardInterrupt):
    """A run ended by Ctrl-C, or by a notebook's stop button; `path` is the log of what was finished by then."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"the run was interrupted; the log of what was finished: {self.path}"

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: that the run was stopped, and where its log is, instead of where it was just then."""
        return [f"Interrupted. What was finished: cuzkbench.read({str(self.path)!r})"]


class _Thread(threading.Thread):
    """To be waited for by `ended`: before Python 3.13 a `join` that Ctrl-C interrupts takes a running thread for ended.

    A daemon, so that a second Ctrl-C ends the process.
    """

    def __init__(self, name: str, work: Callable[..., None], *args: Any) -> None:
        super().__init__(target=work, args=args, name=name, daemon=True)
        self.ended = threading.Event()

    def run(self) -> None:
        """Do the work."""
        try:
            super().run()
        finally:
            self.ended.set()


class Run:
    """The threads of one run and what they share."""

    def __init__(
        self, plan: RunPlan, work: Work, workers: Sequence[Worker], pool: Pool, warmup: Warmup, recorder: Recorder
    ) -> None:
        self._plan, self._work, self._workers, self._recorder = plan, work, workers, recorder
        self._pool, self._warmup = pool, warmup
        self.total = plan.warmup + (plan.partitions or 0)
        self.synthesised = self.made = self.verified = 0
        self._samples: dict[tuple[str, int], float] = {}
        self.failure: BaseException | None = None
        self._queue: Handoff[Flight] = Handoff(plan.queue_depth or 1, first=plan.warmup)
        self._proofs: SimpleQueue[Flight | None] = SimpleQueue()
        self._order = iter(range(self.total))
        self._counting = threading.Lock()

    def run(self, progress: Progress) -> None:
        """Until every partition is done, or as much as was finished at the first failure; raises KeyboardInterrupt."""
        self._guarded(self._pool.fill, _buffers(self._plan), self._recorder.scope("warmup", -1, warmup=True))
        synthesis = [self._thread("synthesis", self._synthesise) for _ in range(self._plan.synthesis_workers or 1)]
        proving = [self._thread(f"worker {worker.number}", self._prove, worker) for worker in self._workers]
        verifying = self._thread("verifier", self._verify)
        try:
            for thread in (*synthesis, *proving, verifying):
                thread.start()
            self._wait(synthesis, progress)
            self._queue.end()
            self._wait(proving, progress)
        except BaseException:
            self._stop()
            raise
        finally:
            for thread in (*synthesis, *proving, verifying):
                if thread is verifying:
                    self._proofs.put(None)
                if thread.ident is not None:  # None where it could not be started
                    thread.ended.wait()
            self._report(progress)

    def _thread(self, name: str, work: Callable[..., None], *args: Any) -> _Thread:
        return _Thread(name, self._guarded, work, *args)

    def _wait(self, threads: Sequence[_Thread], progress: Progress) -> None:
        for thread in threads:
            while not thread.ended.wait(POLL_S):
                self._report(progress)

    def _report(self, progress: Progress) -> None:
        if self._recorder.failure is not None:
            self._fail(self._recorder.failure)
        samples: dict[tuple[str, int], float] = {("queue.partitions", -1): len(self._queue)}
        samples["pool.buffers", -1] = self._pool.in_use
        for device in {worker.device for worker in self._workers}:
            samples |= {(name, device.gpu): value for name, value in device.counters().items()}
        for (name, gpu), value in samples.items() - self._samples.items():
            self._recorder.counter(name, value, gpu)
        self._samples = samples
        progress("synthesis", self.synthesised, self.total)
        progress("partitions", self.made, self.total)

    def _guarded(self, work: Callable[..., None], *args: Any) -> None:
        try:
            work(*args)
        except Stopped:
            pass
        except BaseException as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        with self._counting:
            self.failure = self.failure or error
        self._stop()

    def _stop(self) -> None:
        self._queue.end(early=True)
        self._pool.stop()
        self._warmup.stop()

    def _synthesise(self) -> None:
        threads = _synthesis_threads(self._plan)
        while True:
            with self._counting:
                partition = next(self._order, None)
            if partition is None:
                return
            warmup = partition < self._plan.warmup
            scope = self._recorder.scope("warmup" if warmup else "proof", partition, warmup=warmup)
            buffer = self._pool.checkout(scope)
            with scope.span(Phase.SYNTHESIS, "synthesis"):
                self._work.synthesise(partition, buffer.array, threads)
            with self._counting:
                self.synthesised += 1
            self._queue.put(Flight(partition, scope, buffer, self._recorder.clock()), first=warmup)

    def _prove(self, worker: Worker) -> None:
        while (flight := self._queue.get()) is not None:
            flight.scope.add(Phase.QUEUE, Lane.CPU, "queue", flight.ready_ns, self._recorder.clock())
            flight.scope = flight.scope.on(worker.device.gpu, worker.number)
            worker.prove(flight)
            with self._counting:
                self.made += 1
            self._proofs.put(flight)

    def _verify(self) -> None:
        while (flight := self._proofs.get()) is not None:
            if not self._plan.verify or flight.proof is None:
                continue
            start_ns = self._recorder.clock()
            accepted = self._work.verify(flight.prepared, flight.proof)
            word = "accepted" if accepted else "rejected"
            flight.scope.add(Phase.VERIFY, Lane.CPU, word, start_ns, self._recorder.clock())
            if not accepted:
                self._fail(ValueError(f"the proof of partition {flight.partition} was rejected"))
                continue
            self.verified += 1


def run_plan(
    plan: RunPlan,
    path: Path,
    progress: Progress | None = None,
    *,
    convert: Callable[[Path, Path], None] | None = None,
    on_header: Callable[[Mapping[str, Any]], None] | None = None,
    on_event: Callable[[Sequence[Event]], None] | None = None,
) -> Path:
    """Run a plan on its device and write the log to `path`, which ends in .jsonl, or in .parquet with a `convert`.

    `progress(stage, done, total)` is called a few times a second; `convert(jsonl, path)` makes the final file from the
    JSON Lines written beside it; `on_header` gets the header, then `on_event` each batch of rows. Raises ValueError,
    OSError and MemoryError before anything is written; RunFailed, or RunInterrupted after Ctrl-C, with a log of what
    was finished.
    """
    native = _native_path(path, convert)
    failure: BaseException | None = None
    try:
        with ExitStack() as stack:
            failure = _run(plan, native, progress or silent, on_header, on_event, stack)
    except Exception as error:
        if failure is None:
            raise
        failure.add_note(f"and while closing: {error}")  # a broken device often cannot be closed either
    if native != path and convert is not None:
        try:
            convert(native, path)
            native.unlink()
        except (OSError, ValueError, KeyboardInterrupt) as error:  # a full disk, a run without rows, Ctrl-C
            path, failure = native, failure or error
    if isinstance(failure, Exception):
        raise RunFailed(f"{type(failure).__name__}: {failure}", path) from failure
    if isinstance(failure, KeyboardInterrupt):
        raise RunInterrupted(path) from failure
    if failure is not None:
        raise failure
    return path


def _native_path(path: Path, convert: object) -> Path:
    """Where the rows are written; raises before any work if that cannot be done."""
    outputs.check(path, outputs.LOGS if convert else (".jsonl",))
    return path if path.suffix == ".jsonl" else path.with_name(f"{path.stem}.{secrets.token_hex(4)}.jsonl")


def _run(
    plan: RunPlan,
    path: Path,
    progress: Progress,
    on_header: Callable[[Mapping[str, Any]], None] | None,
    on_event: Callable[[Sequence[Event]], None] | None,
    stack: ExitStack,
) -> BaseException | None:
    """Everything between opening the devices and the trailer; returns what ended the run early."""
    devices: list[RunDevice] = []
    for gpu in range(plan.gpus):
        devices.append(open_device(plan.device, gpu))
        stack.callback(devices[-1].close)
    first = devices[0]
    plan = plan.resolve({"cuda": "cuda", "emulated": "host"}[first.kind])
    work = work_of(plan)
    host_bytes, device_bytes = (count * work.nbytes + work.key_bytes for count in (_buffers(plan), plan.workers))
    check_fits(host_bytes, device_bytes, devices)
    work.load(first, progress)
    pool = Pool(first, POLICIES[plan.memory].made_of, work.nbytes)
    stack.callback(pool.close)
    workers: list[Worker] = []
    warmup = Warmup(plan.warmup)
    for device in devices:
        lock, key = FifoLock(warmup), work.key_on(device)
        for _ in range(plan.workers):
            workers.append(Worker(device, len(workers), lock, plan, pool, work, key))
            stack.callback(workers[-1].close)
    stack.callback(sys.setswitchinterval, sys.getswitchinterval())
    sys.setswitchinterval(SWITCH_S)
    emulations = _calibrate(plan, devices, workers, work)
    rates = _line_rates(first, plan.cpu_load, stack)
    recorder = Recorder(
        run_id(plan), timing=plan.timing, device_clock=first.event_clock, ranges=first.ranges, on_event=on_event
    )
    opening = header(plan, devices, work, emulations, rates)
    if on_header is not None:
        on_header(opening)
    recorder.open(path, opening)
    run = Run(plan, work, workers, pool, warmup, recorder)
    try:
        run.run(progress)
        failure = run.failure
    except BaseException as error:  # Ctrl-C, or what a progress callback raised
        failure = error
    ended = "interrupted" if isinstance(failure, KeyboardInterrupt) else "failed" if failure else "done"
    trailer = {
        "ended": ended,
        "error": f"{type(failure).__name__}: {failure}" if isinstance(failure, Exception) else None,
        "clock": first.clock_fit(),
        "proofs": {"made": run.made, "verified": run.verified} if work.proofs else None,
        "pool": pool.counters(),
    }
    try:
        recorder.close(trailer)
    except BaseException as error:  # a full disk, what `on_event` raised, Ctrl-C: the log ends without its trailer
        failure = failure or error
    return failure


def _synthesis_threads(plan: RunPlan) -> int:
    """Of each synthesis worker: the cores but two, shared out."""
    return max(1, ((os.cpu_count() or 1) - 2) // (plan.synthesis_workers or 1))


def _buffers(plan: RunPlan) -> int:
    """Host buffers: one for each worker, and for each partition that is synthesised or waits, if there are so many."""
    in_flight = max(plan.queue_depth or 1, plan.synthesis_workers or 1) + plan.workers * plan.gpus
    return min(in_flight, plan.warmup + (plan.partitions or 0))


def _calibrate(
    plan: RunPlan, devices: Sequence[RunDevice], workers: Sequence[Worker], work: Work
) -> list[dict[str, Any] | None]:
    """Let every device measure its workers' kernels on a real partition, and make what first launches need."""
    buffer = devices[0].host_buffer(work.nbytes, Memory.PAGEABLE)
    work.synthesise(0, buffer.array, _synthesis_threads(plan))
    for worker in workers:
        worker.fill(buffer)
    devices[0].free_host_buffer(buffer)
    measures = [[worker.measure for worker in workers if worker.device is device] for device in devices]
    loaded = plan.cpu_load > 0
    emulations = [device.calibrate(each, work.nbytes, loaded) for device, each in zip(devices, measures, strict=True)]
    for worker in workers:
        worker.prepare()
    return emulations


def _line_rates(device: RunDevice, cpu_load: int, stack: ExitStack) -> dict[str, dict[str, float]]:
    """Pinned copies beside an idle and a loaded CPU, GB/s; the plan's load goes on until the stack is closed."""
    idle = device.line_rate()
    load = CpuLoad(0 if device.emulates_load else cpu_load or max(1, (os.cpu_count() or 1) - 2))
    stack.callback(load.stop)
    loaded = device.line_rate()
    if not cpu_load:
        load.stop()
    return {way: {"idle": idle[way], "loaded": loaded[way]} for way in idle}
