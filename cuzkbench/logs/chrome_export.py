"""Log -> Chrome trace-event JSON that Perfetto opens: one track a lane, counters, flows from upload to kernel.

Times are written as decimal microseconds with all their nanoseconds; `logs/chrome.py` reads every row back exactly.
A track whose rows overlap goes on in a second one, since viewers want slices apart or nested.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pandas as pd

from cuzkbench.events import Lane, Phase
from cuzkbench.logs.chrome_kinds import OWN
from cuzkbench.logs.log import Log
from cuzkbench.outputs import replacing

_ON_LANES = {Lane.COPY_H2D: "copy H2D", Lane.COPY_D2H: "copy D2H", Lane.COMPUTE: "compute"}
_ORDER = ("synthesis", "queue", "worker", "lock", "copy H2D", "compute", "copy D2H", "host")  # from top to bottom
_HOST_PID = 0  # the process of rows without a GPU; GPU n is process n + 1


def write(log: Log, path: Path) -> None:
    """Write the whole trace or nothing, packed where the name ends in .gz; raises OSError."""
    with (
        replacing(path) as new,
        gzip.open(new, "wt") if path.suffix == ".gz" else new.open("w", encoding="utf-8") as file,
    ):
        _write(log, file)


def _write(log: Log, file: TextIO) -> None:
    facts = {name: log.header[name] for name in ("run", "device_kind", "epoch_utc", "labels", "gpus")}
    file.write(
        json.dumps({"displayTimeUnit": "ms", "otherData": {"writer": OWN, **facts}})[:-1] + ', "traceEvents": [\n'
    )
    rows = log.frame.sort_values(["start_ns", "end_ns"], kind="stable", ignore_index=True)
    counters = (rows["phase"] == Phase.COUNTER).to_numpy()
    spans = rows[~counters].reset_index(drop=True)
    process, thread, names = tracks(spans)
    joint = ""
    for part in (
        _metadata(log, names),
        _slices(spans, process, thread),
        _flows(spans, process, thread),
        _samples(rows[counters]),
    ):
        for text in part:
            file.write(joint + text)
            joint = ",\n"
    file.write("\n]}\n")


def tracks(rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, dict[tuple[int, int], str]]:
    """Process and thread number of each row (sorted by start), and what each thread is called."""
    process = rows["gpu"].to_numpy(np.int64) + 1
    label = np.full(len(rows), "host", object)
    lane, phase, worker = rows["lane"].astype(object), rows["phase"].astype(object), rows["worker"]
    label[(phase == Phase.SYNTHESIS).to_numpy()] = "synthesis"
    label[(phase == Phase.QUEUE).to_numpy()] = "queue"
    for name, chosen in (("worker", lane == Lane.CPU), ("lock", lane == Lane.LOCK)):
        there = (chosen & (worker >= 0)).to_numpy()
        label[there] = [f"{name} {number}" for number in worker[there]]
    for device_lane, name in _ON_LANES.items():
        label[(lane == device_lane).to_numpy()] = name
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
    stacks: list[list[int]] = []
    places = np.zeros(len(start), np.int64)
    for row, (begin, finish) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        place = 0
        while place < len(stacks) and not _fits(stacks[place], begin, finish, nested):
            place += 1
        if place == len(stacks):
            stacks.append([])
        stacks[place].append(finish)
        places[row] = place
    return places


def _fits(stack: list[int], begin: int, finish: int, nested: bool) -> bool:
    """Whether an interval overlaps nothing that is open, or lies in the innermost; what ended is taken off."""
    while stack and stack[-1] <= begin:
        stack.pop()
    return not stack or (nested and finish <= stack[-1])


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
    texts = {
        n: [json.dumps(str(text)) for text in rows[n].cat.categories]
        for n in ("name", "phase", "lane", "job", "memory", "clock")
    }
    coded = [rows[name].cat.codes.tolist() for name in texts]
    plain = [
        rows[name].tolist()
        for name in ("start_ns", "end_ns", "partition", "gpu", "worker", "bytes", "stream", "warmup")
    ]
    names, phases, lanes, jobs, memories, clocks = texts.values()
    for (
        pid,
        tid,
        name,
        phase,
        lane,
        job,
        memory,
        clock,
        start,
        end,
        partition,
        gpu,
        worker,
        size,
        stream,
        warmup,
    ) in zip(process.tolist(), thread.tolist(), *coded, *plain, strict=True):
        yield (
            f'{{"ph":"X","cat":"{OWN}","name":{names[name]},"pid":{pid},"tid":{tid},"ts":{microseconds(start)}'
            f',"dur":{microseconds(end - start)}'
            f',"args":{{"phase":{phases[phase]},"lane":{lanes[lane]},"job":{jobs[job]}'
            f',"partition":{partition},"gpu":{gpu},"worker":{worker},"bytes":{size},"memory":{memories[memory]}'
            f',"stream":{stream},"clock":{clocks[clock]},"warmup":{"true" if warmup else "false"}}}}}'
        )


def _flows(rows: pd.DataFrame, process: np.ndarray, thread: np.ndarray) -> Iterator[str]:
    """From each upload of a partition to its first kernel after it."""
    known = rows[rows["partition"] >= 0]
    uploads, kernels = (known[known["phase"] == phase] for phase in (Phase.H2D, Phase.KERNEL))
    keys = ["run", "job", "partition", "gpu"]
    after = {
        key: (own.index.to_numpy(), own["start_ns"].to_numpy()) for key, own in kernels.groupby(keys, observed=True)
    }
    number = 0
    for key, own in uploads.groupby(keys, observed=True):
        index, starts = after.get(key, (np.empty(0, np.int64), np.empty(0, np.int64)))
        for upload, begin, end in zip(own.index, own["start_ns"], own["end_ns"], strict=True):
            place = int(np.searchsorted(starts, end))
            if place < len(index):
                number += 1
                for ph, row, at in (("s", upload, begin), ("f", index[place], starts[place])):
                    where = f'"pid":{process[row]},"tid":{thread[row]},"ts":{microseconds(int(at))}'
                    yield f'{{"ph":"{ph}","id":{number},"cat":"{OWN}","name":"upload to kernel",{where},"bp":"e"}}'


def _samples(rows: pd.DataFrame) -> Iterator[str]:
    for name, gpu, start, value in zip(rows["name"], rows["gpu"], rows["start_ns"], rows["value"], strict=True):
        event: dict[str, Any] = {"ph": "C", "name": str(name), "pid": int(gpu) + 1, "args": {"value": float(value)}}
        yield json.dumps(event)[:-1] + f',"ts":{microseconds(int(start))}}}'
