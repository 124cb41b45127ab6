"""Measure what the README's speed table states of large logs: `.venv/bin/python docs/scale.py` on an idle machine.

Makes a Chrome trace of 2,000,000 events (about 400 MB) and our own log of 2,000,000 rows, then prints, for each of
import, explain and report, the wall time and the largest memory of a fresh process, and the size of the report.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd

from cuzkbench import RunPlan, run

ROWS = 2_000_000
SLOWEST_S, MOST_GB, LARGEST_MB = 60, 4, 8  # what is asked for


def chrome_trace(path: Path) -> None:
    """Launches and kernels as PyTorch's profiler writes them, two GPUs, every fifth pair an upload."""
    with path.open("w", encoding="utf-8") as file:
        file.write('{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "A"}, {"id": 1, "name": "B"}],\n')
        file.write('"traceEvents": [\n')
        for pair in range(ROWS // 2):
            gpu, at, copy = pair % 2, pair * 7, pair % 5 == 0
            call = {"cbid": 211, "correlation": pair}
            place = {"device": gpu, "context": 1, "stream": 7, "correlation": pair}
            if copy:
                kind, name, args = "gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", {**place, "bytes": 8192}
            else:
                name = f"void at::native::vectorized_elementwise_kernel<4, at::native::Functor{pair % 97}<float>>"
                kind, args = "kernel", {**place, "grid": [128, 1, 1], "block": [256, 1, 1]}
            launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 4242, "tid": 4242}
            launch |= {"ts": at + 0.125, "dur": 2.5, "args": call}
            work = {"ph": "X", "cat": kind, "name": name, "pid": gpu, "tid": 7, "ts": at + 3.5, "dur": 4 + pair % 3}
            file.write(f"{json.dumps(launch)},\n{json.dumps(work | {'args': args})}")
            file.write(",\n" if pair < ROWS // 2 - 1 else "\n]}\n")


def own_log(path: Path) -> None:
    """Runs of the model device one after another in one log."""
    short = run(RunPlan(device="model", partitions=1000, seed=1))
    length = int(short.frame["end_ns"].max())
    parts = [
        short.frame.assign(
            start_ns=short.frame["start_ns"] + number * length,
            end_ns=short.frame["end_ns"] + number * length,
            partition=short.frame["partition"] + number * 1001,
        )
        for number in range(-(-ROWS // len(short.frame)))
    ]
    frame = pd.concat(parts, ignore_index=True).iloc[:ROWS]
    type(short)(frame, short.header, short.trailer).save(path)


def measured(*arguments: str) -> tuple[float, float]:
    """Seconds and GB (largest resident set) of a command in a fresh process."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "cuzkbench", *arguments], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"cuzkbench {' '.join(arguments)}: status {os.waitstatus_to_exitcode(status)}")
    return time.perf_counter() - start, used.ru_maxrss * 1024 / 1e9


def main() -> None:
    """The rows of the table, one file after the other."""
    print("| what | asked for | measured |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for what, make, name in (("Chrome trace", chrome_trace, "trace.json"), ("our log", own_log, "log.jsonl")):
            path, report = Path(folder) / name, Path(folder) / "report.html"
            make(path)
            size = f"{what}, {ROWS:,} rows, {path.stat().st_size / 1e6:.0f} MB"
            for command in (
                ("import", str(path), "-o", f"{folder}/log.parquet"),
                ("explain", str(path)),
                ("report", str(path), "-o", str(report)),
            ):
                seconds, gb = measured(*command)
                print(
                    f"| {size}: `{command[0]}` | {SLOWEST_S} s, {MOST_GB} GB | {seconds:.0f} s, {gb:.1f} GB |",
                    flush=True,
                )
            print(f"| its report | {LARGEST_MB} MB | {report.stat().st_size / 1e6:.1f} MB |", flush=True)


if __name__ == "__main__":
    main()
