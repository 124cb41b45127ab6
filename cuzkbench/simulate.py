"""The stage lists on SimPy: a plan and its costs become a log in milliseconds; replay and what-if use the same core.

Meaning, as in the real runtime: synthesis workers take partitions in order, wait for a buffer of the pool (pinned),
synthesise, and wait until the bounded queue has room; a GPU worker runs `stages.stages` for one partition after the
other and takes and returns the lock where the list says. The lock and every engine serve first come, first served:
one copy at a time in each direction and GPU, be it pinned or pageable. A copy's row begins when it is asked for.
Where heap memory is copied under a driver's lock, who copied needs that lock once more to go on (`Shape.settles`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import simpy

from cuzkbench.costs import Costs, Upload, Work, production
from cuzkbench.events import FORMAT_VERSION, Lane, Memory, Phase
from cuzkbench.logs.log import Log
from cuzkbench.logs.validate import complete_header, validate
from cuzkbench.plan import RunPlan
from cuzkbench.stages import MEMORIES, Stage, stages

_ROW_NAMES = {"buffer": "wait", "wait": "lock", "hold": "lock"}  # where a row is called otherwise than its span


class Span(NamedTuple):
    """What a partition did: a stage or synthesis, buffer, queue, wait, hold; `granted` is after its engine's wait."""

    name: str
    partition: int
    gpu: int
    worker: int
    start: int
    granted: int
    end: int


@dataclass(frozen=True)
class Shape:
    """What serves the partitions. `pool`: host buffers, None for as many as wanted."""

    stages: tuple[Stage, ...]
    workers: int
    gpus: int = 1
    synthesis_workers: int = 1
    queue_depth: float = 1
    pool: int | None = None
    interleaved: bool = False  # another upload may go between two copies of one; else uploads run one after the other
    settles: bool = False  # after a copy its caller goes on only when the bus is its own again, for no time

    @classmethod
    def of(cls, plan: RunPlan) -> Shape:
        """The shape of a resolved plan."""
        assert plan.synthesis_workers and plan.queue_depth, "a resolved plan"
        served = (plan.workers, plan.gpus, plan.synthesis_workers, plan.queue_depth)
        return cls(stages(plan.lock, plan.memory), *served, pool_buffers(*served))

    def with_workers(self, workers: int, synthesis_workers: int | None = None) -> Shape:
        """The same with other numbers of workers; a queue and a pool that are as deep as plans make them follow."""
        synthesis = synthesis_workers or self.synthesis_workers
        depth = workers * self.gpus if self.queue_depth == self.workers * self.gpus else self.queue_depth
        pool = self.pool
        if pool:
            before = pool_buffers(self.workers, self.gpus, self.synthesis_workers, self.queue_depth)
            pool = max(1, pool + pool_buffers(workers, self.gpus, synthesis, depth) - before)
        return dataclasses.replace(self, workers=workers, synthesis_workers=synthesis, queue_depth=depth, pool=pool)


def pool_buffers(workers: int, gpus: int, synthesis_workers: int, queue_depth: float) -> int:
    """Host buffers: one for each worker and for each partition that is synthesised or waits."""
    return int(max(queue_depth, synthesis_workers)) + workers * gpus


def simulate_core(shape: Shape, work: Work) -> list[Span]:
    """Run every partition of `work` through the shape; spans in the order in which they ended, integer ns from 0."""
    env: Any = simpy.Environment()  # its clock counts ns as int, which SimPy's types do not know
    queue = simpy.Store(env, shape.queue_depth)
    pool = simpy.Container(env, shape.pool, shape.pool) if shape.pool else None
    order = iter(range(len(work)))
    spans: list[Span] = []
    synthesis = work.stages["synthesis"]
    copies = work.copies if shape.interleaved else [(sum(pieces),) for pieces in work.copies]
    frees = "unregister" if any(stage.name == "unregister" for stage in shape.stages) else "kernels"
    steps = [
        (stage, copies if stage.phase is Phase.H2D else [(ns,) for ns in work.stages[stage.name]])
        for stage in shape.stages
    ]

    def synthesise() -> Generator[simpy.Event, Any, None]:
        for k in order:
            asked = env.now
            if pool is not None:
                yield pool.get(1)
                if env.now > asked:
                    spans.append(Span("buffer", k, -1, -1, asked, asked, env.now))
            begun = env.now
            if synthesis[k]:
                yield env.timeout(synthesis[k])
            spans.append(Span("synthesis", k, -1, -1, begun, begun, env.now))
            yield queue.put((k, env.now))

    def prove(
        gpu: int, worker: int, lock: simpy.Resource, engines: dict[Lane, simpy.Resource]
    ) -> Generator[simpy.Event, Any, None]:
        while True:
            k, ready = yield queue.get()
            spans.append(Span("queue", k, -1, -1, ready, ready, env.now))
            held, acquired = None, 0
            for stage, durations in steps:
                if stage.locked and held is None:
                    asked, held = env.now, lock.request()
                    yield held
                    acquired = env.now
                    if acquired > asked:
                        spans.append(Span("wait", k, gpu, worker, asked, asked, acquired))
                elif held is not None and not stage.locked:
                    lock.release(held)
                    spans.append(Span("hold", k, gpu, worker, acquired, acquired, env.now))
                    held = None
                engine = engines.get(stage.lane)
                for duration in durations[k]:
                    begun = env.now
                    if engine is not None:
                        turn = engine.request()
                        yield turn
                    granted = env.now
                    if duration:
                        yield env.timeout(duration)
                    if engine is not None:
                        engine.release(turn)
                    spans.append(Span(stage.name, k, gpu, worker, begun, granted, env.now))
                    if shape.settles and stage.lane is Lane.COPY_H2D and engine is not None:
                        turn = engine.request()
                        yield turn
                        engine.release(turn)
                if pool is not None and stage.name == frees:
                    pool.put(1)
            if held is not None:
                lock.release(held)
                spans.append(Span("hold", k, gpu, worker, acquired, acquired, env.now))

    for _ in range(shape.synthesis_workers):
        env.process(synthesise())
    for gpu in range(shape.gpus):
        lock = simpy.Resource(env)
        engines = {lane: simpy.Resource(env) for lane in (Lane.COPY_H2D, Lane.COPY_D2H, Lane.COMPUTE)}
        for worker in range(shape.workers):
            env.process(prove(gpu, gpu * shape.workers + worker, lock, engines))
    env.run()
    return spans


def simulate(plan: RunPlan, costs: Costs | None = None, seed: int | None = None) -> Log:
    """The log of a plan at production scale, marked simulated; the same plan, costs and seed give the same log."""
    plan = plan.resolve("model")
    costs = costs or production(plan)
    seed = seed if seed is not None else plan.seed or 0
    upload = costs.upload(plan, seed)
    work = costs.work(plan, seed, upload)
    spans = simulate_core(Shape.of(plan), work)
    header = complete_header(_header(plan, costs, seed), "simulation")
    return Log(validate(_rows(spans, plan, costs, upload), header, "simulation"), header, _trailer(spans, plan, upload))


def _rows(spans: list[Span], plan: RunPlan, costs: Costs, upload: Upload) -> pd.DataFrame:
    """Spans as rows of the record: an upload becomes its copies and staging, kernels become the kernels by share."""
    memory = MEMORIES[plan.memory]
    cuts = np.cumsum([0.0, *costs.kernel_shares.values()]) / sum(costs.kernel_shares.values())
    plain = {
        "synthesis": (Phase.SYNTHESIS, Lane.CPU),
        "buffer": (Phase.ALLOC, Lane.CPU),
        "queue": (Phase.QUEUE, Lane.CPU),
        "wait": (Phase.LOCK_WAIT, Lane.LOCK),
        "hold": (Phase.LOCK_HOLD, Lane.LOCK),
    } | {stage.name: (stage.phase, stage.lane) for stage in stages(plan.lock, plan.memory)}
    out: list[tuple[Any, ...]] = []
    for name, k, gpu, worker, start, granted, end in spans:
        phase, lane = plain[name]
        who = (k, gpu, worker, phase, lane)
        if phase is Phase.KERNEL:
            edges = (granted + cuts * (end - granted)).round().astype(np.int64).tolist()
            edges[-1] = end
            named = zip(costs.kernel_shares, pairwise(edges), strict=True)
            out += [(*who, kernel, *edge, 0, Memory.NONE) for kernel, edge in named]
        elif phase is Phase.H2D:
            if memory is Memory.STAGED:
                filled = granted + int(upload.staging_ns[k])
                out.append((k, gpu, worker, Phase.STAGE, Lane.CPU, "ring", granted, filled, 0, Memory.NONE))
                start = granted + upload.slot_ns
            ends = (granted + np.cumsum(upload.ns[k])).tolist()
            for copy, from_ns, to_ns, size in zip(upload.NAMES, [start, *ends], ends, upload.bytes, strict=False):
                if size:
                    kind = Memory.PINNED if memory is Memory.PAGEABLE and copy == "witness" else memory
                    out.append((*who, copy, from_ns, to_ns, size, kind))
        elif phase is Phase.D2H:
            out.append((*who, "results", start, end, costs.download_bytes, Memory.PINNED))
        else:
            out.append((*who, _ROW_NAMES.get(name, name), start, end, 0, Memory.NONE))
    names = ("partition", "gpu", "worker", "phase", "lane", "name", "start_ns", "end_ns", "bytes", "memory")
    rows = pd.DataFrame(dict(zip(names, zip(*out, strict=True), strict=True)))
    for name in ("phase", "lane", "memory"):
        rows[name] = rows[name].map(str)
    rows["warmup"] = rows["partition"] < plan.warmup
    rows["job"] = np.where(rows["warmup"], "warmup", "proof")
    rows["run"] = _run(plan)
    rows["stream"] = rows["worker"].where(rows["phase"].isin(["H2D", "KERNEL", "D2H"]), -1)
    rows["clock"] = np.where(rows["stream"] >= 0, "DEVICE", "HOST")
    return rows.sort_values(["start_ns", "end_ns"], kind="stable", ignore_index=True)


def _run(plan: RunPlan) -> str:
    return f"model-{plan.preset or f'{plan.lock}-{plan.memory}-{plan.workers}'}"


def _header(plan: RunPlan, costs: Costs, seed: int) -> dict[str, Any]:
    rate = {"idle": costs.line_rate, "loaded": costs.line_rate_loaded}
    return {
        "format_version": FORMAT_VERSION,
        "run": _run(plan),
        "device_kind": "simulated",
        "kernels": "timed",
        "labels": ["simulated at production scale: every time comes from a cost model, no proofs"],
        "gpus": [{"gpu": gpu, "device": "model of one data-centre GPU"} for gpu in range(plan.gpus)],
        "versions": {"simpy": simpy.__version__},
        "plan": plan.as_mapping(),
        "seed": seed,
        "line_rate_gb_s": {"H2D": rate, "D2H": rate},
    }


def _trailer(spans: list[Span], plan: RunPlan, upload: Upload) -> dict[str, Any]:
    last = "unregister" if MEMORIES[plan.memory] is Memory.REGISTERED else "kernels"
    taken = [(span.start, 1) for span in spans if span.name == "synthesis"]
    given = [(span.end, -1) for span in spans if span.name == last]
    high = int(np.cumsum([step for _, step in sorted(taken + given)]).max())
    water = {"high_water_bytes": high * sum(upload.bytes), "high_water_buffers": high}
    pool = water | {"allocated": Shape.of(plan).pool, "reused": len(taken) - high}
    return {"ended": "done", "error": None, "clock": None, "hooks": None, "proofs": None, "pool": pool}
