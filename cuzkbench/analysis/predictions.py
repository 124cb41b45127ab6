"""What-if from each of several logs to the plans of the others, beside what those measured: how far to trust it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from cuzkbench.analysis.metrics import metrics, partitions
from cuzkbench.analysis.replay import replay
from cuzkbench.analysis.whatif import RESAMPLES, apply, whatif
from cuzkbench.logs.log import Log

CHANGED = ("memory", "lock", "workers")
SAME = ("log2_size", "kernels", "gpus")


def warmed_up(log: Log) -> int:
    """When every worker had proved its first partition, ns: until then kernels are loaded and streams captured."""
    done = partitions(log)
    return int(done.groupby(["gpu", "worker"])["completion_ns"].min().max())


def predictions(logs: Mapping[str, Log], across_load: bool = False, resamples: int = RESAMPLES) -> pd.DataFrame:
    """One row a pair of logs, by name, whose plans differ in memory, lock or workers and in nothing else that counts.

    Both sides count from `warmed_up` on. `error`: predicted over measured cadence, less 1. `slower_uploads`: by how
    much the target's uploads lasted longer on the bus than the prediction assumes, for whoever asks where an error
    comes from; it takes no part in it. Not predicted: the figures are null and `why` says what the source lacks.
    `across_load`: the pairs of unlike CPU load instead.
    """
    out = []
    for (source, before), (target, after) in itertools.permutations(logs.items(), 2):
        ours, theirs = before.header["plan"], after.header["plan"]
        changes = {name: theirs[name] for name in CHANGED if theirs[name] != ours[name]}
        alike = all(ours[name] == theirs[name] for name in SAME)
        if changes and alike and (ours["cpu_load"] != theirs["cpu_load"]) is across_load:
            out.append(_predicted(before, after, changes, resamples) | {"source": source, "target": target})
    return pd.DataFrame(out, columns=_COLUMNS)


_COLUMNS = [
    "source", "target", "changes", "measured_ns", "low_ns", "middle_ns", "high_ns", "error", "slower_uploads", "why",
]  # fmt: skip


def _predicted(before: Log, after: Log, changes: dict[str, Any], resamples: int) -> dict[str, Any]:
    start = warmed_up(before)
    found = whatif(before, resamples=resamples, start_ns=start, **changes)
    measured = float(metrics(after, start_ns=warmed_up(after))["cadence_ns"].mean())
    row = {"changes": ", ".join(f"{name} {value}" for name, value in changes.items()), "why": found["why"]}
    if not found["supported"]:
        return row | {"measured_ns": measured}
    low, middle, high = found["predicted"]["cadence_ns"]
    assumed = apply(replay(before, start_ns=start), **changes)[1].copies
    taken = replay(after).work.copies
    slower = np.mean([sum(upload) for upload in taken]) / np.mean([sum(upload) for upload in assumed]) - 1
    figures = {"measured_ns": measured, "low_ns": low, "middle_ns": middle, "high_ns": high}
    return row | figures | {"error": middle / measured - 1, "slower_uploads": slower}
