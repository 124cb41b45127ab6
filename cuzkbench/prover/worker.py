"""A GPU worker: takes synthesised partitions and lives through the stage list of the plan, one partition at a time.

The list (stages.py) is data: which stages there are and which of them the GPU lock covers. This module knows how to do
each stage, never which policy is in force.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from cuzkbench.device import RunDevice
from cuzkbench.device.base import HostBuffer, Stream
from cuzkbench.events import Lane, Memory, Phase
from cuzkbench.plan import RunPlan
from cuzkbench.prover.lock import FifoLock
from cuzkbench.prover.memory import POLICIES, Pool
from cuzkbench.prover.work import Work
from cuzkbench.stages import stages
from cuzkbench.timing import Scope


@dataclass
class Flight:
    """One partition between its synthesis and its proof."""

    partition: int
    scope: Scope
    buffer: HostBuffer
    ready_ns: int  # end of synthesis
    prepared: Any = None
    proof: bytes | None = None


class Worker:
    """One of the workers of a GPU, with device memory and streams of its own, allocated here and never again."""

    def __init__(
        self, device: RunDevice, number: int, lock: FifoLock, plan: RunPlan, pool: Pool, work: Work, key: Any
    ) -> None:
        self.device, self.number = device, number
        self._lock, self._stages, self._pool, self._work = lock, stages(plan.lock, plan.memory), pool, work
        self.compute = device.stream()
        self.slot = work.slot(device, key)
        vector_bytes = max(part.stop - part.start for part in work.vectors.values())
        self.copies = POLICIES[plan.memory](device, device.stream(), vector_bytes)
        timed = plan.timing
        kernels = [queue for _, queue in self.slot.kernels]
        self._kernel_sequence = device.sequence(self.compute, kernels, timed=timed, kernels=True)
        self._download_sequence = device.sequence(self.compute, [self._download_results], timed=timed)
        self._steps: dict[str, Callable[[Flight], None]] = {
            "prep": self._prepare,
            "register": lambda flight: self.device.register(flight.buffer),
            "upload": self._upload,
            "kernels": self._kernels,
            "download": self._download,
            "unregister": lambda flight: self.device.unregister(flight.buffer),
            "finish": self._finish,
        }

    def prove(self, flight: Flight) -> None:
        """Do every stage, holding the GPU lock over those that the list says; free afterwards, whatever happens."""
        scope = flight.scope
        held = False
        try:
            for stage in self._stages:
                if stage.locked and not held:
                    self._lock.acquire(scope)
                elif held and not stage.locked:
                    self._lock.release(scope)
                held = stage.locked
                with scope.span(stage.phase, stage.name) if stage.lane is Lane.CPU else scope.range(stage.name):
                    self._steps[stage.name](flight)
                    emulated_ns = self.device.emulated_ns(stage.name)
                    if emulated_ns:
                        time.sleep(emulated_ns / 1e9)
                if stage.name == self.copies.last_use:
                    self._pool.checkin(flight.buffer)
        finally:
            if held:
                self._lock.release(scope)

    def fill(self, buffer: HostBuffer) -> None:
        """Upload a partition without a record, for `measure`."""
        for part in self._work.vectors.values():
            target = self.slot.memory.view(part.start, part.stop - part.start)
            self.device.upload(self.compute, target, buffer.array[part], buffer.memory)
        self.compute.synchronize()

    def measure(self) -> int:
        """Nanoseconds of one partition's kernels on what the device memory holds; they make and warm what they need."""
        start = self.compute.record()
        for _, queue in self.slot.kernels:
            queue(self.compute)
        end = self.compute.record()
        self.compute.synchronize()
        return end.time_ns() - start.time_ns()

    def prepare(self) -> None:
        """Do now what only first launches need, so that no partition waits for it; after `measure`."""
        self._kernel_sequence.prepare()
        self._download_sequence.prepare()

    def close(self) -> None:
        """Give back what was allocated outside the device."""
        self.copies.close()
        for _, host in self.slot.results.values():
            self.device.free_host_buffer(host)

    def _prepare(self, flight: Flight) -> None:
        flight.prepared = self._work.prepare(flight.partition, flight.buffer.array)

    def _upload(self, flight: Flight) -> None:
        for name, part in self._work.vectors.items():
            target = self.slot.memory.view(part.start, part.stop - part.start)
            self.copies.upload(flight.scope, target, flight.buffer.array[part], name)
        self.compute.wait(self.copies.stream.record())
        self.copies.finish(flight.scope)

    def _kernels(self, flight: Flight) -> None:
        self._kernel_sequence.launch()
        self.compute.synchronize()

    def _download(self, flight: Flight) -> None:
        self._download_sequence.launch()
        self.compute.synchronize()

    def _download_results(self, stream: Stream) -> None:
        for source, host in self.slot.results.values():
            self.device.download(stream, host.array, source)

    def _finish(self, flight: Flight) -> None:
        scope, number = flight.scope, self.compute.number
        names = [name for name, _ in self.slot.kernels]
        for name, pair in zip(names, pairwise(self._kernel_sequence.times_ns()), strict=False):  # none if untimed
            scope.between(Phase.KERNEL, Lane.COMPUTE, name, pair, number)
        nbytes = sum(host.array.nbytes for _, host in self.slot.results.values())
        for pair in pairwise(self._download_sequence.times_ns()):
            scope.between(Phase.D2H, Lane.COPY_D2H, "download", pair, number, nbytes, Memory.PINNED)
        flight.proof = self._work.finish(self.device, self.slot, flight.prepared)
