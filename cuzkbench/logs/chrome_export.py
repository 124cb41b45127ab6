"""Log -> Chrome trace-event JSON that Perfetto opens: one track a lane, counters, flows from upload to kernel.

Times are written as decimal microseconds with all their nanoseconds; `logs/chrome.py` reads every row back exactly.
A track whose rows overlap goes on in a second one, since viewers want slices apart or nested.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cuzkbench.events import Lane, Phase
from cuzkbench.logs.chrome_kinds import OWN
from cuzkbench.logs.log import Log
from cuzkbench.outputs import replacing

_ON_LANES = {Lane.COPY_H2D: "copy H2D", Lane.COPY_D2H: "copy D2H", Lane.COMPUTE: "compute"}
_ORDER = ("synthesis", "queue", "worker", "lock", "copy H2D", "compute", "copy D2H", "host")  # from top to bottom
_ARGS = ["phase", "lane", "job", "partition", "gpu", "worker", "bytes", "memory", "stream", "clock", "warmup"]
_HOST_PID = 0  # the process of rows without a GPU; GPU n is process n + 1


def write(log: Log, path: Path) -> None:
    """Write the whole trace or nothing, packed where the name ends in .gz; raises OSError."""
    facts = {name: log.header[name] for name in ("run", "device_kind", "epoch_utc", "labels", "gpus")}
    opening = json.dumps({"displayTimeUnit": "ms", "otherData": {"writer": OWN, **facts}})
    rows = log.frame.sort_values(["start_ns", "end_ns"], kind="stable", ignore_index=True)
    counters = rows["phase"] == Phase.COUNTER
    spans = rows[~counters].reset_index(drop=True)
    process, thread, names = tracks(spans)
    slices, flows = _slices(spans, process, thread), _flows(spans, process, thread)
    open_text = gzip.open if path.suffix == ".gz" else open
    with replacing(path) as new, open_text(new, "wt", encoding="utf-8") as file:
        file.write(f'{opening[:-1]}, "traceEvents": [\n')
        joint = ""
        for text in chain(_metadata(log, names), slices, flows, _samples(rows[counters])):
            file.write(joint + text)
            joint = ",\n"
        file.write("\n]}\n")


def tracks(rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, dict[tuple[int, int], str]]:
    """Process and thread number of each row (sorted by start), and what each thread is called."""
    process = rows["gpu"].to_numpy(np.int64) + 1
    lane, phase, owned = rows["lane"], rows["phase"], rows["worker"] >= 0
    worker = rows["worker"].astype(str).to_numpy(object)
    labels: list[tuple[Any, Any]] = [(lane == on, name) for on, name in _ON_LANES.items()]
    labels += [((lane == Lane.LOCK) & owned, "lock " + worker), ((lane == Lane.CPU) & owned, "worker " + worker)]
    labels += [(phase == Phase.QUEUE, "queue"), (phase == Phase.SYNTHESIS, "synthesis")]
    label = np.select([chosen for chosen, _ in labels], [np.asarray(name, object) for _, name in labels], "host")
    thread = np.zeros(len(rows), np.int64)
    names: dict[tuple[int, int], str] = {}
    start, end = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    groups: dict[Any, Any] = dict(pd.Series(range(len(rows))).groupby([process, label], sort=False).indices)
    for (pid, name), members in sorted(groups.items(), key=lambda item: (item[0][0], _rank(item[0][1]))):
        first = max((tid for own, tid in names if own == pid), default=0) + 1
        places = _apart(start[members], end[members], nested=name not in _ON_LANES.values())
        thread[members] = first + places
        for place in range(int(places.max()) + 1):
            names[pid, first + place] = name if place == 0 else f"{name} ({place + 1})"
    return process, thread, names


def _rank(name: str) -> tuple[int, str]:
    return next((i for i, known in enumerate(_ORDER) if name.startswith(known)), len(_ORDER)), name


def _apart(start: np.ndarray, end: np.ndarray, nested: bool) -> np.ndarray:
    """For each interval (sorted by start) the first track where it overlaps nothing, or lies whole in what it meets."""
    stacks: list[list[int]] = []  # the ends of what is open on each track
    places = np.zeros(len(start), np.int64)
    for row, (begin, finish) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        for stack in stacks:
            while stack and stack[-1] <= begin:
                stack.pop()
        free = (i for i, stack in enumerate(stacks) if not stack or (nested and finish <= stack[-1]))
        places[row] = place = next(free, len(stacks))
        if place == len(stacks):
            stacks.append([])
        stacks[place].append(finish)
    return places


def _metadata(log: Log, names: dict[tuple[int, int], str]) -> Iterator[str]:
    devices = {int(gpu["gpu"]): str(gpu.get("device", "unknown device")) for gpu in log.header["gpus"]}
    for pid in sorted({pid for pid, _ in names}):
        name = "host" if pid == _HOST_PID else f"GPU {pid - 1}: {devices.get(pid - 1, 'unknown device')}"
        yield json.dumps({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}})
        yield json.dumps({"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}})
    for (pid, tid), name in names.items():
        yield json.dumps({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}})
        yield json.dumps({"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": {"sort_index": tid}})


def microseconds(ns: int) -> str:
    """Nanoseconds as decimal microseconds, exactly."""
    return f"{'-' if ns < 0 else ''}{abs(ns) // 1000}.{abs(ns) % 1000:03d}"


def _slices(rows: pd.DataFrame, process: np.ndarray, thread: np.ndarray) -> Iterator[str]:
    for first in range(0, len(rows), 1 << 16):
        here = slice(first, first + (1 << 16))
        part = rows.iloc[here]
        texts = part[_ARGS].to_json(orient="records", lines=True).splitlines()
        names = part["name"].cat.rename_categories(json.dumps)
        plain = (process[here], thread[here], names, part["start_ns"], part["end_ns"] - part["start_ns"])
        for pid, tid, name, at, ns, args in zip(*(column.tolist() for column in plain), texts, strict=True):
            yield (
                f'{{"ph":"X","cat":"{OWN}","name":{name},"pid":{pid},"tid":{tid}'
                f',"ts":{microseconds(at)},"dur":{microseconds(ns)},"args":{args}}}'
            )


def _flows(rows: pd.DataFrame, process: np.ndarray, thread: np.ndarray) -> Iterator[str]:
    """From each upload of a partition to its first kernel after it."""
    start = rows["start_ns"].tolist()
    known = rows[rows["partition"] >= 0].assign(row=lambda part: part.index)
    uploads, kernels = (known[known["phase"] == phase] for phase in (Phase.H2D, Phase.KERNEL))
    keys = ["run", "job", "partition", "gpu"]
    pairs = pd.merge_asof(
        uploads.sort_values("end_ns")[[*keys, "end_ns", "row"]],
        kernels[[*keys, "start_ns", "row"]],
        left_on="end_ns", right_on="start_ns", by=keys, direction="forward",
    )  # fmt: skip
    ends = pairs[["row_x", "row_y"]].dropna().astype(int)
    for number, pair in enumerate(ends.itertuples(index=False), 1):
        for ph, row in zip("sf", pair, strict=True):
            where = f'"pid":{process[row]},"tid":{thread[row]},"ts":{microseconds(start[row])}'
            yield f'{{"ph":"{ph}","id":{number},"cat":"{OWN}","name":"upload to kernel",{where},"bp":"e"}}'


def _samples(rows: pd.DataFrame) -> Iterator[str]:
    for name, gpu, start, value in zip(rows["name"], rows["gpu"], rows["start_ns"], rows["value"], strict=True):
        event: dict[str, Any] = {"ph": "C", "name": str(name), "pid": int(gpu) + 1, "args": {"value": float(value)}}
        yield json.dumps(event)[:-1] + f',"ts":{microseconds(int(start))}}}'
