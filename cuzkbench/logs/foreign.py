"""What every reader of a foreign format shares: blocks of columns in, one validated Log out, with its counts.

A reader adds blocks of rows and counts what it read, dropped and bounded; nothing is lost silently, the counts stand
in `header["source"]` and in the warnings. Only what a reader puts into `facts` reaches the header.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cuzkbench.events import COLUMNS, FORMAT_VERSION, Event, LogFormatError, Phase
from cuzkbench.logs.log import Log
from cuzkbench.logs.validate import complete_header, validate

NAME_CHARACTERS = 2000  # longer names are shortened and counted
MOST_GPUS = 1024
LAUNCH = "launch"  # the name of rows from a runtime call to the start of what it launched
NO_GPU = "This log holds no GPU activity: nothing can be said about the GPU."
_EVENT = dict(Event._field_defaults) | {"job": "", "partition": -1, "gpu": -1, "worker": -1, "lane": "CPU"}


class Foreign:
    """Rows, counts and warnings of one foreign log while it is read."""

    def __init__(self, format: str, paths: Sequence[Path]) -> None:
        self.format, self.paths = format, list(paths)
        self.read: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.bounded: Counter[str] = Counter()
        self.warnings: list[str] = []
        self.labels: list[str] = []
        self._blocks: list[tuple[int, dict[str, Any]]] = []
        self._codes: dict[str, dict[str, int]] = {n: {} for n, kind in COLUMNS.items() if kind == "category"}

    def add(self, count: int, **columns: Any) -> None:
        """Rows as columns: scalars, arrays, for names also (codes, their names); the record's defaults for the rest."""
        block: dict[str, Any] = {}
        for name, kind in COLUMNS.items():
            value = self.paths[0].name if name == "run" else columns.get(name, _EVENT.get(name))
            if kind == "category":
                value = self._encode(name, value)
            block[name] = np.broadcast_to(np.asarray(np.nan if value is None else value, _dtype(kind)), count)
        if count:
            self._blocks.append((count, block))

    def _encode(self, column: str, value: Any) -> Any:
        if isinstance(value, str):
            return self._code(column, value)
        codes, names = value if isinstance(value, tuple) else pd.factorize(np.asarray(value, object))
        known = np.fromiter((self._code(column, str(name)) for name in names), np.int32)
        return known[codes] if len(known) else known

    def _code(self, column: str, text: str) -> int:
        known = self._codes[column]
        if (code := known.get(text)) is None:
            clean = text.encode("utf-8", "replace").decode()
            if len(clean) > NAME_CHARACTERS:
                self.bounded["names shortened"] += 1
                clean = clean[: NAME_CHARACTERS - 1] + "…"
            code = known[text] = known.setdefault(clean, len(known))
        return code

    def launched(self, call: np.ndarray, called: np.ndarray, started: np.ndarray, **columns: np.ndarray) -> None:
        """A row `launch` from each runtime call's start to the start of the first operation that it launched."""
        order = np.lexsort((started, call))
        first = order[np.flatnonzero(np.diff(call[order], prepend=-1))]
        late = started[first] > called[first]
        self.bounded["operations that start before their launch: clocks disagree"] += int((~late).sum())
        kept = first[late]
        rows = {name: values[kept] for name, values in columns.items()}
        self.add(len(kept), phase="OTHER", name=LAUNCH, start_ns=called[kept], end_ns=started[kept], **rows)

    @property
    def rows(self) -> int:
        """Rows so far."""
        return sum(count for count, _ in self._blocks)

    def log(
        self,
        gpus: Iterable[Mapping[str, Any]],
        facts: Mapping[str, Any] | None = None,
        cut_at: str | None = None,
        epoch_utc: str | None = None,
        quantum_ns: int = 1,
    ) -> Log:
        """The validated log; raises LogFormatError where nothing was read at all."""
        path = self.paths[0]
        if not self._blocks and cut_at is not None:
            raise LogFormatError(path, cut_at, "nothing is left to read: the log holds no interval")
        blocks = [block for _, block in self._blocks] or [{n: np.empty(0, _dtype(kind)) for n, kind in COLUMNS.items()}]
        columns: dict[str, Any] = {n: np.concatenate([block[n] for block in blocks]) for n in COLUMNS}
        for name, codes in self._codes.items():
            columns[name] = _categorical(columns[name], codes)
        active = columns["phase"].isin([Phase.KERNEL, Phase.H2D, Phase.D2H, Phase.D2D, Phase.MEMSET])
        if not active.any():
            self.labels.append(NO_GPU)
            self.warnings.append(NO_GPU)
        counts = {"read": self.read, "dropped": self.dropped, "bounded": self.bounded}
        for verb in ("dropped", "bounded"):
            self.warnings += [f"{verb}: {what} ({n:,})" for what, n in sorted(counts[verb].items()) if n]
        source = {"format": self.format, "files": [file.name for file in self.paths], "quantum_ns": quantum_ns}
        source |= {verb: {what: n for what, n in sorted(count.items()) if n} for verb, count in counts.items()}
        header = {
            "format_version": FORMAT_VERSION,
            "run": path.name,
            "device_kind": "foreign",
            "gpus": [dict(gpu) for gpu in gpus],
            "epoch_utc": epoch_utc,
            "source": source | {"facts": dict(facts or {})},
            "labels": self.labels,
            "warnings": self.warnings,
        }
        whole = complete_header(header, path)
        frame = validate(pd.DataFrame(columns, copy=False), whole, path)
        return Log(frame, whole, None, cut_at, tuple(self.warnings), str(path))


def _dtype(kind: str) -> str:
    return "int32" if kind == "category" else kind


def _categorical(codes: np.ndarray, known: dict[str, int]) -> pd.Categorical:
    """Codes as names; several texts may share a code where cleaning made them equal."""
    names: dict[int, str] = {}
    for text, code in known.items():
        names.setdefault(code, text)  # the cleaned text was put in first
    order = sorted(names)
    position = np.zeros(max(order, default=0) + 1, np.int32)
    position[order] = np.arange(len(order))
    return pd.Categorical.from_codes(position[codes], pd.Index([names[code] for code in order], dtype="str"))


def utc(ns: int) -> str | None:
    """Nanoseconds since 1970 as ISO 8601, to the microsecond; None beyond the calendar."""
    try:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=ns // 1000)).isoformat()
    except OverflowError:
        return None


def number(path: object, keys: Sequence[Any]) -> dict[Any, int]:
    """A GPU number for each key in order: the key's own last part where it is a device number not yet taken."""
    if len(keys) > MOST_GPUS:
        raise LogFormatError(path, "devices", f"{len(keys):,} different devices, more than {MOST_GPUS}")
    numbers: dict[Any, int] = {}
    for key in keys:
        own = key[-1] if isinstance(key, tuple) else key
        if isinstance(own, int) and 0 <= own < MOST_GPUS and own not in numbers.values():
            numbers[key] = own
    free = (n for n in range(2 * MOST_GPUS) if n not in numbers.values())
    return numbers | {key: next(free) for key in keys if key not in numbers}


def launches(calls: np.ndarray, operations: np.ndarray) -> np.ndarray:
    """For each device operation the index of the call that launched it, -1 without; both as correlation numbers."""
    order = np.argsort(calls, kind="stable")
    place = np.searchsorted(calls[order], operations)
    place[place == len(calls)] = 0
    found = order[place] if len(calls) else np.zeros(len(operations), np.int64)
    return np.where(calls[found] == operations, found, -1) if len(calls) else found - 1
