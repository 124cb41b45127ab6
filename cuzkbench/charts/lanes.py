"""Rows of a log as marks in lanes: which lane draws a row, which sub-row of it, and what a reader is told on hovering.

A device row with a known worker is drawn twice, in the lane of the resource and in that of its worker, since the
question is who waits for what.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from cuzkbench.analysis.intervals import Intervals, union
from cuzkbench.charts.palette import PHASES, Paint
from cuzkbench.events import Lane, Memory, Phase
from cuzkbench.logs.log import Log
from cuzkbench.words import duration, rate, size

# kinds of lane, top to bottom; workers follow from WORKER on, what no GPU worker does comes last
COMPUTE, COPY_IN, COPY_OUT, LOCK, WORKER = 0, 1, 2, 3, 4
SYNTHESIS, VERIFY, HOST = 1 << 20, (1 << 20) + 1, (1 << 20) + 2
_TITLES = {COMPUTE: "GPU compute", COPY_IN: "upload", COPY_OUT: "download", LOCK: "GPU lock", SYNTHESIS: "synthesis"}
_TITLES |= {VERIFY: "verification", HOST: "host threads"}
_KINDS = {Lane.COMPUTE: COMPUTE, Lane.COPY_H2D: COPY_IN, Lane.COPY_D2H: COPY_OUT}
STRIDE = 1 << 21  # lane key = place of the GPU * STRIDE + kind
_ROW, _SUB_ROW = {COMPUTE: 1.4}, 0.4  # heights: of a lane (else 1), and the least of one of its sub-rows
TITLED = {COPY_OUT: Phase.D2H, LOCK: Phase.LOCK_HOLD, SYNTHESIS: Phase.SYNTHESIS, VERIFY: Phase.VERIFY}
_WAITS = (Phase.LOCK_WAIT, Phase.QUEUE, Phase.HOST_SYNC)


@dataclass(frozen=True)
class Track:
    """One lane: its title and the vertical room it takes, downwards from `top` in units of one plain row."""

    key: int
    title: str
    top: float
    height: float

    @property
    def middle(self) -> float:
        """Where the lane's label stands; the axis counts downwards."""
        return self.top + self.height / 2


def each(frame: pd.DataFrame) -> Iterator[Any]:
    """The rows of a frame as objects with a field a column, whose types only the column knows."""
    yield from frame.itertuples()


def marks(log: Log, window: tuple[float, float] | None = None) -> pd.DataFrame:
    """One row a mark: the log's columns and `key`, the lane that draws it; only what touches the window (seconds)."""
    frame = log.frame
    keep = (frame["phase"] != Phase.COUNTER).to_numpy() & (frame["end_ns"] > frame["start_ns"]).to_numpy()
    if window is not None:
        low, high = (round(edge * 1e9) for edge in window)
        keep &= (frame["end_ns"] > low).to_numpy() & (frame["start_ns"] < high).to_numpy()
    frame = frame[keep]
    phase, lane = frame["phase"], frame["lane"]
    kind = np.full(len(frame), -1, np.int64)
    for name, number in _KINDS.items():
        kind[(lane == name).to_numpy()] = number
    kind[(phase == Phase.LOCK_HOLD).to_numpy()] = LOCK
    worker = frame["worker"].to_numpy(np.int64)
    # a worker's lane shows what it does; that it holds the lock is the lock's lane
    works = (worker >= 0) & ~phase.isin([Phase.LOCK_HOLD, Phase.VERIFY]).to_numpy()
    rest = (kind < 0) & ~works
    fed = phase.isin([Phase.SYNTHESIS, Phase.QUEUE, Phase.ALLOC, Phase.STAGE]).to_numpy()
    kind[rest] = np.where(fed[rest], SYNTHESIS, HOST)
    kind[rest & (phase == Phase.VERIFY).to_numpy()] = VERIFY
    place = np.where((frame["gpu"] < 0) | rest, 0, frame["gpu"].astype("int64")) * STRIDE
    drawn = [frame.assign(key=place + kind)[kind >= 0], frame.assign(key=place + WORKER + worker)[works]]
    return pd.concat(drawn).sort_values(["key", "start_ns", "end_ns"], kind="stable", ignore_index=True)


def _title(log: Log, key: int, rows: pd.DataFrame, gpus: int) -> str:
    kind, gpu = key % STRIDE, key // STRIDE
    words = _TITLES.get(kind) or f"worker {kind - WORKER}"
    if kind == COPY_IN:
        kinds = [memory for memory in Memory if memory != Memory.NONE and (rows["memory"] == memory).any()]
        words += f"<br><span style='font-size:10px'>{', '.join(kinds).lower()}</span>" if kinds else ""
    return f"GPU {gpu} · {words.removeprefix('GPU ')}" if gpus > 1 and kind < SYNTHESIS else words


def paint_of(key: int) -> Paint:
    """The colour of a whole lane, for charts that do not draw its single rows."""
    phases = TITLED | {COMPUTE: Phase.KERNEL, COPY_IN: Phase.H2D, HOST: Phase.HOST_SYNC}
    return PHASES[phases.get(key % STRIDE, Phase.PREP)]


def tracks(log: Log, rows: pd.DataFrame) -> list[Track]:
    """The lanes of marks in order, as high as the sub-rows of packed marks need."""
    lanes, top = [], 0.0
    order = sorted(rows["key"].unique(), key=lambda key: (key % STRIDE >= SYNTHESIS, key))
    for key in order:
        mine = rows["key"] == key
        depth = int(rows.loc[mine, "subs"].max()) if "subs" in rows else 1
        height = max(_ROW.get(key % STRIDE, 1.0), depth * _SUB_ROW)
        lanes.append(Track(int(key), _title(log, int(key), rows[mine], len(log.gpus)), top, height))
        top += height
    return lanes


def packed(rows: pd.DataFrame) -> pd.DataFrame:
    """The marks with `sub` and `subs`: overlaps in a lane go to sub-rows, each step of a partition to one of them."""
    part, lane = rows["partition"].to_numpy(np.int64), rows["key"].to_numpy(np.int64) % STRIDE
    phase = np.where(lane == SYNTHESIS, -1, rows["phase"].cat.codes)
    stream = np.where(part < 0, rows["stream"], -1)
    spans = rows[["key", "start_ns", "end_ns"]].assign(
        step=pd.MultiIndex.from_arrays([rows["key"], rows["job"].cat.codes, part, phase, stream]).factorize()[0]
    )
    steps = spans.groupby("step").agg(key=("key", "first"), start=("start_ns", "min"), end=("end_ns", "max"))
    sub = np.zeros(len(steps), np.int64)
    for _, lane_steps in steps.sort_values(["start", "end"], kind="stable").groupby("key"):
        free: list[int] = []  # sub-rows that are free again, lowest first
        busy: list[tuple[int, int]] = []  # (end, sub-row)
        opened = 0
        for step, start, end in zip(lane_steps.index, lane_steps["start"], lane_steps["end"], strict=True):
            while busy and busy[0][0] <= start:
                heapq.heappush(free, heapq.heappop(busy)[1])
            if not free:
                heapq.heappush(free, opened)
                opened += 1
            sub[step] = heapq.heappop(free)
            heapq.heappush(busy, (end, sub[step]))
    marked = rows.assign(sub=sub[spans["step"]])
    return marked.assign(subs=marked.groupby("key")["sub"].transform("max") + 1)


def places(rows: pd.DataFrame, lanes: list[Track]) -> tuple[np.ndarray, np.ndarray]:
    """Middle and height of each mark on the axis that counts downwards."""
    of = pd.DataFrame(lanes, columns=["key", "title", "top", "height"]).set_index("key").loc[rows["key"]]
    each = (of["height"].to_numpy(float) - 0.16) / rows["subs"].to_numpy(float)
    return of["top"].to_numpy(float) + 0.08 + each * (rows["sub"].to_numpy(float) + 0.5), each * 0.94


def hover(rows: pd.DataFrame) -> list[str]:
    """What each mark says: name, phase, partition, worker, duration, bytes, rate and memory kind; escaped."""
    texts = []
    several = rows.loc[~rows["warmup"], "job"].nunique() > 1
    for row in each(rows):
        job = f" of {escape(str(row.job))}" if several else ""
        who = [f"partition {row.partition}{job}"] if row.partition >= 0 else []
        who += [f"worker {row.worker}"] if row.worker >= 0 else []
        who += ["warm-up"] if row.warmup else []
        head, ns = PHASES[Phase[row.phase]].words, row.end_ns - row.start_ns
        text = f"<b>{head}</b>" + (f" {escape(str(row.name))}" if row.name and str(row.name) != head else "")
        text += f"<br>{', '.join(who)}" if who else ""
        text += f"<br>{duration(ns)}, from {row.start_ns / 1e9:.4f} s to {row.end_ns / 1e9:.4f} s"
        if row.bytes:
            text += f"<br>{size(row.bytes)} at {rate(row.bytes / ns)}"
            text += f", {row.memory.lower()}" if row.memory not in ("NONE", "UNKNOWN") else ""
        texts.append(text)
    return texts


def busy(rows: pd.DataFrame, key: int) -> Intervals:
    """The instants in which a lane works; waiting is not work."""
    mine = rows[(rows["key"] == key) & ~rows["phase"].isin(_WAITS)]
    return union(mine["start_ns"], mine["end_ns"])
