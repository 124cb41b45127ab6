"""Our rows against the record that CUPTI makes of the same run, by torch.profiler in this process (GPU, torch)."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from cuzkbench.analysis.intervals import union
from cuzkbench.device import cuda_missing
from cuzkbench.logs import read
from cuzkbench.plan import RunPlan
from cuzkbench.prover.scheduler import run_plan

torch = pytest.importorskip("torch", reason="torch is not installed: its profiler is the second opinion")
MISSING = cuda_missing()
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(MISSING is not None, reason=f"no GPU: {MISSING}")]
LOG2_SIZE = int(os.environ.get("CUZKBENCH_TRUTH_LOG2", "18"))


def _union_ns(frame, phase: str) -> int:
    rows = frame[frame["phase"] == phase]
    return union(rows["start_ns"], rows["end_ns"]).measure


def _nearest(edges: np.ndarray, found: np.ndarray) -> np.ndarray:
    """For each edge the signed distance to the nearest of the others (sorted)."""
    at = np.clip(np.searchsorted(found, edges), 1, len(found) - 1)
    before, after = found[at - 1] - edges, found[at] - edges
    return np.where(-before < after, before, after)


@pytest.mark.parametrize("memory", ["pageable", "pinned"])
def test_rows_agree_with_cupti(tmp_path: Path, memory: str) -> None:
    plan = RunPlan(device="cuda", memory=memory, log2_size=LOG2_SIZE, partitions=6, seed=3)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        torch.zeros(1, device="cuda")
        path = run_plan(plan, tmp_path / "run.jsonl")
    profiler.export_chrome_trace(str(tmp_path / "cupti.json"))
    ours, truth = read(path), read(tmp_path / "cupti.json")
    rows = ours.frame[ours.frame["partition"] >= 0]
    epochs = [datetime.fromisoformat(log.header["epoch_utc"]).timestamp() for log in (ours, truth)]
    shift = round((epochs[1] - epochs[0]) * 1e9) if truth.header["epoch_utc"] else 0
    bound = max(50_000, ours.trailer["clock"]["bound_ns"])

    kernels = rows[rows["phase"] == "KERNEL"]
    cupti = truth.frame[truth.frame["phase"] == "KERNEL"]
    starts = np.sort(cupti["start_ns"].to_numpy() + shift)
    shift -= round(float(np.median(_nearest(kernels["start_ns"].to_numpy(), starts))))  # the clocks' wall times differ

    first, last = kernels["start_ns"].min(), kernels["end_ns"].max()
    inside = truth.frame[
        (truth.frame["start_ns"] + shift >= first - bound) & (truth.frame["end_ns"] + shift <= last + bound)
    ]
    measured, expected = _union_ns(kernels, "KERNEL"), _union_ns(inside, "KERNEL")
    print(f"{memory}: kernel union {measured} ns, by CUPTI {expected} ns, ratio {measured / expected:.5f}")
    assert measured == pytest.approx(expected, rel=0.01)

    copies = rows[(rows["phase"] == "H2D") & (rows["start_ns"] >= first) & (rows["end_ns"] <= last)]
    in_cupti = inside[(inside["phase"] == "H2D") & (inside["bytes"] >= 32 << LOG2_SIZE >> 1)]
    measured, expected = _union_ns(copies, "H2D"), _union_ns(in_cupti, "H2D")
    print(f"{memory}: copy union {measured} ns, by CUPTI {expected} ns, ratio {measured / expected:.5f}")
    # the marks around a pageable copy include the staging of its first chunk, which CUPTI's record leaves out
    assert measured == pytest.approx(expected, rel={"pinned": 0.01, "pageable": 0.03}[memory])

    for edge in ("start_ns", "end_ns"):
        found = np.sort(cupti[edge].to_numpy() + shift)
        off = _nearest(kernels[edge].to_numpy(), found)
        worst, middle = int(np.abs(off).max()), float(np.median(np.abs(off)))
        late = dict(zip(kernels["name"][np.abs(off) > bound], off[np.abs(off) > bound], strict=True))
        print(f"{memory}: {edge} of kernel rows off by {middle:.0f} ns (median), {worst} ns at most {late}")
        assert worst <= bound
