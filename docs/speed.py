"""Measure what the README's speed table states: `.venv/bin/python docs/speed.py` on an otherwise idle machine.

Prints one row of the table for each figure: the median of three and the range. "Cold" has an empty cache.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from cuzkbench import RunPlan, analysis, read, run
from cuzkbench.device import host_math
from cuzkbench.device.host import HostDevice
from cuzkbench.events import Memory
from cuzkbench.prover import keys
from cuzkbench.prover.circuit import Circuit
from cuzkbench.prover.synthesis import synthesise
from cuzkbench.prover.work import Groth16
from cuzkbench.timing import span_cost_ns

REPEATS = 3
ROWS = 1_000_000


def row(what: str, target: str, measure: Callable[[], float], unit: str = "s") -> None:
    """Measure and print."""
    values = sorted(measure() for _ in range(REPEATS))
    print(
        f"| {what} | {target} | {statistics.median(values):.3g} {unit} ({values[0]:.3g} to {values[-1]:.3g}) |",
        flush=True,
    )


def seconds(work: Callable[[], object]) -> float:
    """Wall time of a call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def process(*arguments: str, cold: bool = False) -> float:
    """Wall time of a fresh Python process; cold: with an empty cache directory."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}  # ours sets it
        if cold:
            environment["XDG_CACHE_HOME"] = folder
        command = [sys.executable, *arguments]
        return seconds(lambda: subprocess.run(command, env=environment, cwd=folder, check=True, capture_output=True))


def host_figures() -> None:
    """Kernels, synthesis, keys and whole partitions of the host device."""
    values = np.zeros(32 << 16, np.uint8)
    host_math.ntt(values, 16)  # compiles and makes its tables
    row("one NTT of 2^16", "0.06 s", lambda: seconds(lambda: host_math.ntt(values, 16)))
    circuit = Circuit(18)
    out = np.zeros(circuit.partition_bytes, np.uint8)
    synthesise(circuit, 1, 0, out)

    def synthesis() -> float:
        return circuit.constraints / seconds(lambda: synthesise(circuit, 1, 0, out)) / 1e6

    row("synthesis of 2^18 on one core", "15 million/s", synthesis, "million constraints a second")
    keys.generate(Circuit(8), 1)
    for log2_size, target in ((12, "4 s"), (14, "10 s")):
        row(f"key generation 2^{log2_size}", target, lambda n=log2_size: seconds(lambda: keys.generate(Circuit(n), 1)))  # type: ignore[misc]
    plan = RunPlan.named("one-worker", device="host", partitions=5, seed=1)
    done = analysis.partitions(run(plan))
    kernels = done["kernel_ns"][~done["warmup"]] / 1e9
    low, middle, high = kernels.min(), kernels.median(), kernels.max()
    print(f"| kernels of a 2^12 partition | 1 s | {middle:.3g} s ({low:.3g} to {high:.3g}) |")
    shares = sorted(kernel_cpu_share() for _ in range(REPEATS))
    print(f"| CPU time of kernels over their duration | 90 % | {shares[1]:.0%} ({shares[0]:.0%} to {shares[-1]:.0%}) |")
    print(f"| one span of the hooks | 2 µs | {span_cost_ns() / 1e3:.3g} µs |")


def kernel_cpu_share() -> float:
    """CPU time of one 2^12 partition's kernels on the host device over their wall time; nothing else runs."""
    work, device = Groth16(RunPlan(log2_size=12, seed=1).resolve("host")), HostDevice()
    work.load(device, lambda *_: None)
    slot, stream = work.slot(device, work.key_on(device)), device.stream()
    buffer = device.host_buffer(work.nbytes, Memory.PAGEABLE)
    work.synthesise(0, buffer.array, 1)
    for part in work.vectors.values():
        target = slot.memory.view(part.start, part.stop - part.start)
        device.upload(stream, target, buffer.array[part], Memory.PAGEABLE)
    stream.synchronize()
    shares = []
    for _ in range(2):  # the first one warms up
        cpu, wall = time.process_time(), time.perf_counter()
        for _, queue in slot.kernels:
            queue(stream)
        stream.synchronize()
        shares.append((time.process_time() - cpu) / (time.perf_counter() - wall))
    device.close()
    return shares[-1]


def log_figures() -> None:
    """A Parquet log of a million rows: read it, and compute its metrics."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "long.parquet"
        short = run(RunPlan(device="model", partitions=1000, seed=1))
        length = int(short.frame["end_ns"].max())
        copies = -(-ROWS // len(short.frame))
        parts = [
            short.frame.assign(
                start_ns=short.frame["start_ns"] + number * length,
                end_ns=short.frame["end_ns"] + number * length,
                partition=short.frame["partition"] + number * 1001,
            )
            for number in range(copies)
        ]
        frame = pd.concat(parts, ignore_index=True)
        type(short)(frame, short.header, short.trailer).save(path)
        row(
            f"{len(frame):,} rows read, metrics computed",
            "1.5 s",
            lambda: seconds(lambda: analysis.metrics(read(path))),
        )


def main() -> None:
    """The whole table; takes some five minutes."""
    print("| what | asked for | measured |\n|---|---|---|")
    row("`import cuzkbench`", "0.2 s", lambda: process("-c", "import cuzkbench"))
    row("`cuzkbench --help`", "0.5 s", lambda: process("-m", "cuzkbench", "--help"))
    host_figures()
    log_figures()
    row("`cuzkbench demo`, warm", "40 s", lambda: process("-m", "cuzkbench", "demo"))
    row("`cuzkbench demo`, cold", "70 s", lambda: process("-m", "cuzkbench", "demo", cold=True))


if __name__ == "__main__":
    main()
