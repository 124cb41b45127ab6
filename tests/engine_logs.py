"""A small model of the cuzk daemon that prints what the daemon prints: logs with their truth, from a seed.

Every value is drawn as a real time and printed as the daemon prints it: whole milliseconds, rounded down.
`python -m tests.engine_logs` prints the example in `data/examples`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

STARTED = datetime(2026, 5, 4, 9, 30, 12, 345_678, tzinfo=UTC)
BYTES = 3 * 32 * 130_278_869


@dataclass
class Truth:
    """One partition's call: what the model did, in milliseconds since the engine's start."""

    job: str
    partition: int
    worker: int
    gpu: int
    pickup: float
    wait: float
    held: float
    acquired: float
    prove_start: int
    upload: float
    ended: float = 0.0


@dataclass
class EngineLog:
    """Lines with their times, by stream, and the truth."""

    stdout: list[tuple[float, str]] = field(default_factory=list)
    stderr: list[tuple[float, str]] = field(default_factory=list)
    truth: list[Truth] = field(default_factory=list)

    def info(self, t: float, target: str, message: str, span: str = "") -> None:
        stamp = (STARTED + timedelta(milliseconds=t)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        self.stdout.append((t, f"{stamp}  INFO {span}{target}: {message}"))

    def timeline(self, t: float, event: str, job: str, detail: str) -> None:
        self.stderr.append((t, f"TIMELINE,{int(t)},{event},{job},{detail}"))

    def c(self, t: float, text: str) -> None:
        self.stderr.append((t, text))

    def merged(self) -> list[str]:
        return [text for _, text in sorted(self.stdout + self.stderr, key=lambda line: line[0])]

    def apart(self) -> tuple[list[str], list[str]]:
        return tuple([text for _, text in sorted(lines)] for lines in (self.stdout, self.stderr))


def _timing(**values: float) -> str:
    return "CUZK_TIMING: " + " ".join(f"{name}={int(value)}" for name, value in values.items())


def engine_log(
    gpus: int = 1,
    workers: int = 2,
    partitions: int = 5,
    jobs: tuple[str, ...] = ("porep-1000-7",),
    pinned: bool = False,
    half: bool = True,
    queue: str = "GPU_QUEUE",
    monolithic: bool = False,
    seed: int = 1,
) -> EngineLog:
    """A run of `workers` on each GPU; without `half` no CUZK_NTT_H lines, as in older engines."""
    draw, log = random.Random(seed), EngineLog()
    log.info(0.0, "cuzk_core::engine", "starting cuzk engine pipeline_enabled=true")
    engine, free = "cuzk_core::engine", dict.fromkeys(range(gpus * workers), 0.0)
    lock_free = dict.fromkeys(range(gpus), 0.0)
    ready: list[tuple[float, str, int]] = []
    for number, job in enumerate(jobs):
        for partition in range(1 if monolithic else partitions):
            start = 40_000.0 * number + draw.uniform(0, 900)
            end = start + draw.uniform(4000, 9000)
            part = "kind=porep-c2" if monolithic else f"partition={partition}"
            log.timeline(start, "SYNTH_START", job, part)
            made = f"synth_ms={int(end - start)}"
            log.timeline(end, "SYNTH_END", job, made if monolithic else f"{part},{made}")
            if not monolithic:
                queued = f"partition synthesis complete, pushing to GPU queue job_id={job} {part} {made}"
                log.info(end + 0.2, engine, queued)
            log.timeline(end + 0.4, queue, job, "monolithic" if monolithic else part)
            ready.append((end + 0.4, job, partition))
    for at, job, partition in sorted(ready):
        worker = min(free, key=lambda w: (max(free[w], at), w))
        gpu = worker // workers
        pickup = max(free[worker], at) + draw.uniform(0.05, 0.6)
        number = "None" if monolithic else f"Some({partition})"
        detail = f"worker={worker}" + ("" if monolithic else f",partition={partition}")
        own = f"worker_id={worker} partition={number}"
        inside = f"worker_id={worker} gpu={gpu} job_id={job} proof_kind=porep-c2 batch_size=1 partition={number}"
        span = f"gpu_worker{{{inside}}}: "
        log.timeline(pickup, "GPU_PICKUP", job, detail)
        zeros = "status_ms=0 fail_check_ms=0 mark_busy_ms=0 total_overhead_ms=0"
        log.info(pickup + 0.3, engine, f"GPU_TIMING hot_path pre-prove overhead {own} {zeros}", span)
        log.timeline(pickup + 0.6, "GPU_START", job, detail)
        entry = pickup + 0.9
        pre_lock = draw.uniform(20, 70)
        acquired = max(entry + pre_lock, lock_free[gpu] + 0.05)
        upload = BYTES / (draw.uniform(45, 52) if pinned else draw.uniform(1.5, 4.2)) / 1e6
        rest = draw.uniform(180, 260)
        enqueue, sync = (draw.uniform(3, 9), upload + rest) if pinned else (upload, rest)
        invoke, alloc = draw.uniform(300, 420), draw.uniform(1, 3)
        ntt = alloc + enqueue + sync + 1.2 + invoke + 0.4
        barrier, batch, tail = draw.uniform(0, 30), draw.uniform(500, 700), draw.uniform(70, 90)
        gpu_total = ntt + barrier + batch + tail
        held = gpu_total + draw.uniform(1.5, 4)
        released = acquired + held
        lock_free[gpu] = released
        log.c(entry + 10, _timing(split_vectors_ms=9, setup_to_split_ms=10))
        log.c(entry + 15 + draw.uniform(0, 2000), _timing(prep_msm_ms=draw.uniform(1800, 2100)))
        log.c(entry + 2500 + draw.uniform(0, 900), _timing(b_g2_msm_ms=draw.uniform(400, 600), num_circuits=1))
        log.c(acquired, _timing(pre_lock_cpu_ms=pre_lock, mutex_wait_ms=acquired - entry - pre_lock))
        if half:
            log.c(
                acquired + ntt - 0.1,
                f"CUZK_NTT_H: d_b_alloc={int(alloc)}ms ntt_kernels={int(enqueue)}ms coset_intt_sync={int(sync)}ms"
                f" msm_init=1ms msm_invoke={int(invoke)}ms msm_dtor=0ms total={int(ntt - 0.2)}ms",
            )
        log.c(acquired + ntt, f"CUZK_TIMING: gpu_tid=0 ntt_msm_h_ms={int(ntt)}")
        log.c(acquired + ntt + barrier, f"CUZK_TIMING: gpu_tid=0 barrier_wait_ms={int(barrier)}")
        log.c(acquired + ntt + barrier + batch, f"CUZK_TIMING: gpu_tid=0 batch_add_ms={int(batch)}")
        log.c(acquired + gpu_total, f"CUZK_TIMING: gpu_tid=0 tail_msm_ms={int(tail)} gpu_total_ms={int(gpu_total)}")
        log.c(released - 0.02, _timing(mutex_held_ms=held, total_start_fn_ms=released - entry))
        returned = released + draw.uniform(0.5, 2)
        stated = int(returned - entry)
        log.info(
            returned, engine, f"GPU_TIMING spawn_blocking prove_start {own} spawn_to_enter_ms=0 prove_start_ms={stated}"
        )
        blocked = f"total_pre_prove_ms={int(returned - pickup)} spawn_blocking_wall_ms={stated}"
        log.info(returned + 0.2, engine, f"GPU_TIMING prove_start returned {own} {blocked}", span)
        free[worker] = returned + 0.4
        ended = returned + draw.uniform(6, 15)
        log.timeline(ended, "GPU_END", job, f"{detail},gpu_ms={int(ended - entry)}")
        finished = "finish_ms=9 drop_res_ms=0 lock_wait_ms=0 process_ms=40 total_ms=49"
        what = f"monolithic worker_id={worker}" if monolithic else f"partition {own}"
        log.info(ended + 50, engine, f"FIN_TIMING finalizer {what} {finished}")
        log.c(ended + 90, _timing(async_dealloc_ms=120))
        log.truth.append(
            Truth(
                job, partition, worker, gpu, pickup, acquired - entry - pre_lock, held, acquired, stated, upload, ended
            )
        )
    return log


def coloured(line: str) -> str:
    """A tracing line with the escapes that the daemon's writer puts in, other lines as they are."""
    if not line.startswith("2026"):
        return line
    stamp, level, rest = line.split(maxsplit=2)
    painted = rest.replace("=", "\x1b[0m\x1b[2m=\x1b[0m").replace(
        "gpu_worker{", "\x1b[1mgpu_worker\x1b[0m\x1b[1m{\x1b[0m"
    )
    return f"\x1b[2m{stamp}\x1b[0m \x1b[32m {level}\x1b[0m {painted}"


def example() -> str:
    """The log in `data/examples/engine.log`: two jobs, two workers on one GPU, vectors in heap memory."""
    return "\n".join(engine_log(1, 2, 6, ("porep-1000-7", "porep-1000-8"), seed=20).merged()) + "\n"


if __name__ == "__main__":
    print(example(), end="")
