"""Chrome trace-event JSON, most of all PyTorch profiler traces -> Log. Times are decimal text turned into integers.

GPU rows are recognised by category, copies and their memory by name; everything else that has an interval is kept as
a host row. See FORMATS.md for what this format cannot tell.
"""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cuzkbench.events import LogFormatError
from cuzkbench.logs.chrome_kinds import OWN, Kind, at_least, integer, kind_of, nanoseconds, own_kind
from cuzkbench.logs.foreign import Foreign, number, utc
from cuzkbench.logs.json_events import Events
from cuzkbench.logs.limits import Limits, Source, head
from cuzkbench.logs.log import Log
from cuzkbench.logs.validate import LATEST_NS, MOST_BYTES

KEPT_FACTS = ("schemaVersion", "cupti_version", "cuda_runtime_version", "cuda_driver_version", "hip_runtime_version")
KEPT_DEVICE = ("totalGlobalMem", "computeMajor", "computeMinor", "numSms")
_OPENING = re.compile(rb'(?:\xef\xbb\xbf)?\s*(?:\[\s*(?:[{\]]|$)|\{\s*(?:\}|$|"(?!log":)))')
NO_EVENT = "elements that are no trace event"
LATE_NS = 3_600_000_000_000  # a trace that starts later than an hour after its zero is shifted to its first event
_PLAIN = (-1, -1, 0, -1, -1, -1)  # device, stream, bytes, correlation, partition, worker of a host row
_WITHOUT_INTERVAL = dict.fromkeys("stf", "flow events: launches are joined by correlation")


def sniff(first: bytes, path: Path) -> bool:
    """Whether unpacked first bytes open an object or an array of objects, and no container's log line."""
    return _OPENING.match(head(first)) is not None


def read(path: Path, max_bytes: int | None = None, max_rows: int | None = None) -> Log:
    """The log in one trace file; raises LogFormatError for JSON that is no trace."""
    limits, out = Limits.of(max_bytes, max_rows), Foreign("chrome", [path])
    source = Source(path, limits)
    events, reader = Events(source), _Reader(path, limits, out)
    for event in events:
        reader.take(event)
    nothing = not (out.read or reader.rows or reader.samples or reader.open) and set(+out.dropped) == {NO_EVENT}
    if not events.cut and (nothing or not events.found):
        raise LogFormatError(path, f"byte {source.taken}", "JSON, but without a trace event in it: no trace")
    out.dropped["damaged stretches between events"] = events.damaged
    out.dropped["what follows the end of the trace"] = int(events.trailing)
    return reader.log(events.facts, events.cut)


class _Reader:
    """Events one by one into columns; `log` turns the columns into rows."""

    def __init__(self, path: Path, limits: Limits, out: Foreign) -> None:
        self.path, self.limits, self.out = path, limits, out
        self.rows = array("q")  # start, end and kind of each row
        self.details = array("q")  # the number of a row that is no plain host row, and what takes the place of _PLAIN
        self.kinds: dict[Kind, int] = {}
        self.seen: dict[Any, tuple[int, str]] = {}
        self.devices: dict[object, int] = {}
        self.open: dict[tuple[bool | str, ...], list[tuple[dict[str, Any], int]]] = defaultdict(list)
        self.samples: dict[str, list[tuple[int, float]]] = defaultdict(list)

    def take(self, event: Any) -> None:
        ph = event.get("ph") if isinstance(event, dict) else None
        if ph == "X":
            start, length = nanoseconds(event.get("ts")), nanoseconds(event.get("dur"))
            if start is None or length is None:
                self.out.dropped["X events without ts and dur"] += 1
            elif start == 0 == length:
                self.out.dropped["events at time 0 without duration"] += 1
            else:
                self.interval(event, start, start + length)
        elif ph in ("B", "E", "b", "e", "C"):
            time = nanoseconds(event.get("ts"))
            if time is None or abs(time) >= LATEST_NS:
                self.out.dropped[f"{ph} events without ts"] += 1
            elif ph == "C":
                self.sample(event, time)
            else:
                self.bracket(event, ph, time)
        elif ph == "M":
            self.out.read["metadata events"] += 1
        elif isinstance(ph, str) and len(ph) == 1:
            self.out.dropped[_WITHOUT_INTERVAL.get(ph, "instants and other events without an interval")] += 1
        else:
            self.out.dropped[NO_EVENT] += 1

    def interval(self, event: dict[str, Any], start: int, end: int) -> None:
        """A row; what GPU rows, runtime calls and our own rows say of themselves stands in args."""
        if end < start:
            self.out.bounded["negative durations, taken as 0"] += 1
            end = start
        if not -LATEST_NS < start <= end < LATEST_NS:
            self.out.dropped["times no run can have"] += 1
            return
        index, role = self.classify(event)
        row = len(self.rows) // 3
        self.rows.extend((start, end, index))
        if role != "host":
            self.details.extend((row, *self.detail(role, event)))
        if row & 0xFFFF == 0xFFFF:
            self.limits.rows(self.path, row + 1)

    def classify(self, event: dict[str, Any]) -> tuple[int, str]:
        """The index of the event's kind in order of appearance, and its role."""
        category, name, pid = event.get("cat"), event.get("name"), event.get("pid")
        plain = isinstance(category, str) and isinstance(name, str) and isinstance(pid, str | int)
        if plain and (known := self.seen.get((category, name, pid))):
            return known
        kind = kind_of(str(category), str(name), str(pid).startswith("Device"))
        if category == OWN and isinstance(event.get("args"), dict):
            try:
                kind, plain = own_kind(str(name), event["args"]), False
            except (LookupError, TypeError, ValueError):
                self.out.bounded["rows of our own export that somebody changed, taken as host rows"] += 1
        found = self.kinds.setdefault(kind, len(self.kinds)), kind.role
        if plain:
            self.seen[category, name, pid] = found
        return found

    def detail(self, role: str, event: dict[str, Any]) -> tuple[int, ...]:
        """Device index, stream, bytes, correlation, partition and worker of a row."""
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        correlation = at_least(-1, args.get("correlation", args.get("correlationId")))
        if role == "call":
            return -1, -1, 0, correlation, -1, -1
        place = args.get("gpu" if role == "own" else "device", event.get("pid"))
        device = integer(place)
        if device != -1:
            device = self.devices.setdefault(str(place)[:200] if device is None else device, len(self.devices))
        stream = at_least(-1, args.get("stream", event.get("tid")))
        size = at_least(0, args.get("bytes"), MOST_BYTES)
        if role == "own":
            partition, worker = at_least(-1, args.get("partition"), 2**31), at_least(-1, args.get("worker"), 2**15)
            return device, stream, size, -1, partition, worker
        if size == 0 and "mem" in str(event.get("cat")).lower():
            self.out.bounded["copies and memsets without a size"] += 1
        return device, stream, size, correlation, -1, -1

    def bracket(self, event: dict[str, Any], ph: str, time: int) -> None:
        """B and E by thread, b and e by category and id: the innermost open one is closed."""
        where = ("cat", "id", "id2") if ph in "be" else ("pid", "tid")
        stack = self.open[(ph in "be", *(str(event.get(name)) for name in where))]
        if ph in "Bb":
            stack.append((event, time))
        elif stack:
            begun, start = stack.pop()
            self.interval(begun, start, time)
        else:
            self.out.dropped["E events that close nothing"] += 1

    def sample(self, event: dict[str, Any], time: int) -> None:
        args, name = event.get("args"), str(event.get("name"))
        for series, value in args.items() if isinstance(args, dict) else ():
            try:
                sampled = float(value)
            except (TypeError, ValueError, OverflowError):
                sampled = float("nan")
            if np.isfinite(sampled):
                self.samples[name if series == "value" else f"{name}.{series}"].append((time, sampled))
            else:
                self.out.dropped["counter samples that are no number"] += 1

    def log(self, facts: dict[str, Any], cut_at: str | None) -> Log:
        """The rows by way of arrays, launches joined to what they launched, and the header."""
        latest = max(self.rows[1::3], default=0)
        for event, begun in [unclosed for stack in self.open.values() for unclosed in stack]:
            self.out.bounded["B events never closed, taken to last until the trace ends"] += 1
            self.interval(event, begun, max(begun, latest))
        start, end, kind = np.array(self.rows, np.int64).reshape(-1, 3).T
        details = np.array(self.details, np.int64).reshape(-1, 1 + len(_PLAIN))
        whole = np.full((len(start), len(_PLAIN)), _PLAIN, np.int64)
        whole[details[:, 0]] = details[:, 1:]
        device, stream, size, correlation, partition, worker = whole.T
        zero = int(start.min()) if len(start) and start.min() > LATE_NS else 0
        numbers = number(self.path, list(self.devices))
        gpu = np.array([*(numbers[key] for key in self.devices), -1], np.int64)[device]
        kinds = pd.DataFrame(list(self.kinds), columns=Kind._fields, dtype=object)  # names may be no UTF-8 yet
        of_role = {role: (kinds["role"] == role).to_numpy(bool)[kind] for role in ("call", "device")}
        rows = pd.DataFrame({"key": correlation, "start_ns": start - zero, "gpu": gpu, "stream": stream})
        call, operation = (np.flatnonzero(chosen & (correlation >= 0)) for chosen in of_role.values())
        by = self.out.launches(rows.iloc[call].reset_index(drop=True), rows.iloc[operation])
        gpu[call[by[by >= 0]]] = gpu[operation[by >= 0]]
        if len(numbers) == 1:  # a call of a process with one GPU concerns that GPU
            gpu[of_role["call"]] = next(iter(numbers.values()))
        texts = {name: (kind, kinds[name]) for name in ("phase", "lane", "memory", "name", "clock", "job")}
        stated = {"partition": partition, "worker": worker, "bytes": size, "stream": stream, "gpu": gpu}
        warm = kinds["warmup"].to_numpy(bool)[kind]
        self.out.add(len(start), start_ns=start - zero, end_ns=end - zero, warmup=warm, **texts, **stated)
        for name, samples in self.samples.items():
            times = np.array([time for time, _ in samples], np.int64) - zero
            values = [value for _, value in samples]
            self.out.add(len(times), phase="COUNTER", name=name, start_ns=times, end_ns=times, value=values)
        for category, n in zip(kinds["category"], np.bincount(kind, minlength=len(kinds)), strict=True):
            self.out.read[f"{category[:60]} events"] += int(n)
        kept = {key: value for key in KEPT_FACTS if isinstance(value := facts.get(key), int | str)}
        other = facts.get("otherData")
        if isinstance(other, dict) and other.get("writer") == OWN and isinstance(other.get("labels"), list):
            self.out.labels += [str(label)[:200] for label in other["labels"][:20]]
        base = facts.get("baseTimeNanoseconds")
        epoch = base + zero if type(base) is int else zero if zero > 10**18 else None
        gpus = _gpus(numbers, facts.get("deviceProperties"))
        return self.out.log(gpus, kept | {"time_zero_ns": zero}, cut_at, None if epoch is None else utc(epoch))


def _gpus(numbers: dict[object, int], properties: object) -> list[dict[str, Any]]:
    """The header's list: what the trace calls each GPU, and the whitelisted properties."""
    known = {p.get("id"): p for p in properties if isinstance(p, dict)} if isinstance(properties, list) else {}
    gpus = []
    for key, gpu in sorted(numbers.items(), key=lambda item: item[1]):
        found = known.get(key, {})
        entry = {"gpu": gpu, "device": str(found.get("name", "unknown device"))[:100], "device_id": key}
        gpus.append(entry | {name: found[name] for name in KEPT_DEVICE if isinstance(found.get(name), int)})
    return gpus
