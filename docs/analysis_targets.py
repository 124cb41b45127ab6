"""Measure what the README says of the analysis: `.venv/bin/python docs/analysis_targets.py [speed|mutants]`.

`mutants` breaks the analysis in a copy of the repository, once for each line of MUTANTS, and runs the tests that ought
to see it: every one must fail. Ten minutes; a line that no longer fits the source is an error.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from cuzkbench import RunPlan, analysis
from cuzkbench.events import Phase
from cuzkbench.simulate import simulate

ROOT = Path(__file__).parents[1]
ROWS = 1_000_000
MUTANTS: list[tuple[str, str, str, str]] = [  # module, text, what takes its place, tests
    ("metrics", "table.rows.take(table.rows.gpu == gpu)\n    start", "table.rows\n    start", "metrics"),  # GPUs merged
    ("metrics", '(done["gpu"] == gpu) & ~done["warmup"]', '(done["gpu"] == gpu)', "metrics"),  # warm-up counted
    ("rows", "~kernels.warmup & (kernels.end", "(kernels.end", "metrics"),
    ("metrics", "steps.sum() / len(steps)", "steps.sum() / (len(steps) + 1)", "metrics"),  # one interval too many
    ("metrics", "3.6e12", "3.6e9", "metrics"),  # units
    ("metrics", "size / spent)", "size / spent * 1.024)", "metrics"),
    ("gaps", "end - start <= SHORT_NS", "end - start < SHORT_NS", "gaps"),
    ("gaps", "size + np.where(beside < 1, 0, beside)", "size", "gaps"),  # a rule left out
    ("gaps", "            self._waiting_for_the_lock()\n", "", "gaps"),
    ("gaps", "self.during(who, steps.owned(early)) >= 0", "who < -1", "gaps"),
    ("gaps", "moment = over[pieces.gap]", "moment = idle.end[pieces.gap]", "gaps"),
    ("intervals", "starts[1:] > reach[:-1]", "starts[1:] >= reach[:-1]", "intervals"),
    ("replay", "if row[3] == gpu]", "]", "replay"),
    ("life", "lead = np.maximum(0, self.kernels[0] - begin)", "lead = np.zeros(self.count, np.int64)", "replay"),
    ("life", "2 * copy.ns < rate.ns(copy.bytes)", "False", "replay"),
    ("life", "late -= self._beside_copies(now, np.maximum(now, asked))", "pass", "replay"),
    ("replay", 'kind == "cuda" and stage.name == "unregister"', "False", "replay"),
    ("replay", "self.warmup if as_logged and", "self.warmup if True or", "replay"),
    ("life", "self.woken[following] *= not waited", "pass", "replay theories whatif"),
    ("theories", "more = run.shape.workers + 1", "more = 2", "theories"),
    ("theories", "dataclasses.replace(run.shape, pool=None)", "run.shape", "replay theories"),
    ("theories", "SUPPORTED_FROM, REJECTED_BELOW, HEALTHY_FROM = 0.03", "SUPPORTED_FROM, REJECTED_BELOW, HEALTHY_FROM = 0.05", "theories"),  # noqa: E501
    ("whatif", "rng.choice(measured, len(measured))", "np.array(measured)", "whatif"),
    ("whatif", "return ways(shape) if alone else [shape]", "return [shape]", "whatif"),
    ("predictions", "start_ns=warmed_up(after)", "start_ns=None", "whatif"),
]  # fmt: skip


def seconds(work: Callable[[], object]) -> str:
    """Wall time of a call, median of three and range."""
    taken = []
    for _ in range(3):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    low, middle, high = sorted(taken)
    return f"{middle:.2f} s ({low:.2f} to {high:.2f})"


def speed() -> None:
    """Gaps of a log of a million rows, and a thousand simulated partitions."""
    plan = RunPlan.named("seed-case", device="model", partitions=1000, seed=1)
    print("1,000 partitions simulated:", seconds(lambda: simulate(plan)))
    short = simulate(plan)
    copies, length = -(-ROWS // len(short.frame)), int(short.frame["end_ns"].max())
    at = np.repeat(np.arange(copies), len(short.frame))
    frame = pd.concat([short.frame] * copies, ignore_index=True)
    frame[["start_ns", "end_ns"]] += (at * length)[:, None]
    frame["partition"] += at * 1001
    logs = (type(short)(frame.copy(), short.header, short.trailer) for _ in range(3))  # answers of a log are kept
    busy = (frame["phase"] == Phase.KERNEL).sum()
    print(f"gaps of {len(frame):,} rows, {busy:,} of kernels:", seconds(lambda: analysis.gaps(next(logs))))


def mutants() -> int:
    """How many survive."""
    alive = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv", "*cache*", "h200"))
        for module, old, new, tests in MUTANTS:
            path = copy / "cuzkbench" / "analysis" / f"{module}.py"
            source = path.read_text(encoding="utf-8")
            if old not in source:
                raise ValueError(f"{module}.py no longer holds {old!r}")
            path.write_text(source.replace(old, new, 1), encoding="utf-8")
            names = [f"tests/test_{name}.py" for name in tests.split()]
            command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *names]
            environment = os.environ | {"PYTHONPATH": str(copy)}
            status = subprocess.run(command, cwd=copy, env=environment, capture_output=True, check=False).returncode
            path.write_text(source, encoding="utf-8")
            alive += status != 1
            print("seen" if status == 1 else "NOT SEEN", module, repr(old), flush=True)
    return alive


if __name__ == "__main__":
    what = sys.argv[1:] or ["speed", "mutants"]
    if "speed" in what:
        speed()
    sys.exit(mutants() if "mutants" in what else 0)
