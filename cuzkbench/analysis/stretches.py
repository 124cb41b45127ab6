"""Where in the run utilisation changed: "chains until 7.2 s, then gaps"."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd

from cuzkbench.analysis import intervals
from cuzkbench.analysis.rows import Rows, Table, limits, window
from cuzkbench.events import Phase
from cuzkbench.logs.log import Log

LEAST_CHANGE = 0.1  # of utilisation between two neighbouring stretches
LEAST_T = 4.5  # of the difference, in standard errors: the largest of ten chances stays below it 19 times in 20
LEAST_SPREAD = 0.02  # of utilisation between cycles: even a perfectly regular run must change by more than its grain
LEAST_CYCLES = 2  # on each side of a change
MOST_STRETCHES = 6
MANNERS = ((0.9, "chains"), (0.7, "chains with gaps"), (0.0, "gaps"))  # by utilisation
STEPS, LEAST_STEPS = 60, 5  # equal steps stand for cycles where a log names no partitions


def stretches(log: Log, start_ns: int | None = None, end_ns: int | None = None) -> pd.DataFrame:
    """One row a stretch of the window with one utilisation, by GPU and time.

    A cycle lasts from the end of one partition's kernels to the end of the next one's. The window is split, and its
    parts again, where the cycles before and after differ most, as long as that difference is no chance.
    """
    table, found = Table.of(log), []
    for gpu in table.gpus:
        rows = table.rows.take(table.rows.gpu == gpu).of(Phase.KERNEL)
        start, end = window(rows, *limits(start_ns, end_ns))
        if end == start:
            continue
        busy = intervals.clip(rows.union(), start, end)
        edges = _edges(rows, start, end)
        spans = np.diff(edges)
        share = intervals.overlap(edges[:-1], edges[1:], busy) / spans
        least = LEAST_CYCLES if (rows.who >= 0).any() else LEAST_STEPS
        cuts = [0, *sorted(_cuts(share, least)), len(spans)]
        at = edges[cuts]
        held = intervals.overlap(at[:-1], at[1:], busy)
        found += [(gpu, *row) for row in zip(at[:-1], at[1:], held / np.diff(at), strict=True)]
    return pd.DataFrame(found, columns=["gpu", "start_ns", "end_ns", "kernel_utilisation"])


def _edges(rows: Rows, start: int, end: int) -> np.ndarray:
    """Ends of cycles, from start to end."""
    known = rows.take(rows.who >= 0)
    last = known.last(int(known.who.max(initial=-1)) + 1)
    ends = last[(last > start) & (last < end)] if len(known) else start + (end - start) // STEPS * np.arange(1, STEPS)
    return np.unique(np.concatenate(([start], ends, [end])))


def _cuts(share: np.ndarray, least: int) -> list[int]:
    """Places between cycles at which utilisation changed, the clearest change first."""
    cuts: list[int] = []
    while len(cuts) < MOST_STRETCHES - 1:
        marks = [0, *sorted(cuts), len(share)]
        best = max((_split(share, low, high, least) for low, high in pairwise(marks)), default=(0.0, 0))
        if best[0] < LEAST_T:
            break
        cuts.append(best[1])
    return cuts


def _split(share: np.ndarray, low: int, high: int, least: int) -> tuple[float, int]:
    """The clearest change within [low, high): its t statistic and place; (0, 0) without."""
    part = share[low:high]
    count = len(part)
    left = np.arange(least, count - least + 1)
    if len(left) == 0:
        return 0.0, 0
    total, square = np.cumsum(part), np.cumsum(part**2)
    right = count - left
    before, after = total[left - 1] / left, (total[-1] - total[left - 1]) / right
    within = square[-1] - left * before**2 - right * after**2
    spread = np.sqrt(np.maximum(within / (count - 2), LEAST_SPREAD**2))
    clear = np.abs(before - after) / (spread * np.sqrt(1 / left + 1 / right))
    clear[np.abs(before - after) < LEAST_CHANGE] = 0
    best = int(clear.argmax())
    return float(clear[best]), low + int(left[best])


def course(found: pd.DataFrame) -> str:
    """The stretches of one GPU in words."""
    words: list[str] = []
    for end, share in zip(found["end_ns"].tolist(), found["kernel_utilisation"].tolist(), strict=True):
        manner = next(manner for least, manner in MANNERS if share >= least)
        until = f" until {end / 1e9:.4g} s" if len(words) < len(found) - 1 else ""
        words.append(f"{manner}{until} ({share:.0%} busy)")
    return ", then ".join(words) + (" throughout" if len(words) == 1 else "")
