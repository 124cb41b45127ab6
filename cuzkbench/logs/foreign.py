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
from pandas.api.types import union_categoricals

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
        self._blocks: list[dict[str, Any]] = []

    def add(self, count: int, **columns: Any) -> None:
        """Rows as columns: scalars, arrays, for names also (codes, their names); the record's defaults for the rest."""
        if count:
            columns = _EVENT | {"run": self.paths[0].name} | columns
            self._blocks.append({name: self._column(columns[name], kind, count) for name, kind in COLUMNS.items()})

    def _column(self, value: Any, kind: str, count: int) -> Any:
        if kind != "category":
            return np.broadcast_to(np.asarray(np.nan if value is None else value, kind), count)
        if isinstance(value, str):
            value = np.zeros(count, np.int32), [value]
        codes, names = value if isinstance(value, tuple) else pd.factorize(np.asarray(value, object))
        same, clean = pd.factorize(np.array([self._clean(str(name)) for name in names], object))
        return pd.Categorical.from_codes(same[codes], pd.Index(clean, dtype="str"))

    def _clean(self, text: str) -> str:
        if len(text) > NAME_CHARACTERS:
            self.bounded["names shortened"] += 1
            text = text[: NAME_CHARACTERS - 1] + "…"
        return text.encode("utf-8", "replace").decode()

    def launches(self, calls: pd.DataFrame, operations: pd.DataFrame) -> np.ndarray:
        """For each operation the index of the call that launched it, -1 without, by `key`, and a row `launch` a call.

        It lasts from the call's `start_ns` to that of the first operation launched, whose `gpu` and `stream` it has.
        """
        keys = calls["key"].drop_duplicates()
        found = pd.Index(keys).get_indexer(pd.Index(operations["key"]))
        by = np.where(found < 0, -1, np.append(keys.index, -1)[found])
        first = operations.assign(call=by)[by >= 0].sort_values(["call", "start_ns"]).drop_duplicates("call")
        first["called_ns"] = calls["start_ns"].to_numpy()[first["call"]]
        late = first[first["start_ns"] > first["called_ns"]]
        self.bounded["operations that start before their launch: clocks disagree"] += len(first) - len(late)
        times = {"start_ns": late["called_ns"], "end_ns": late["start_ns"]}
        self.add(len(late), phase="OTHER", name=LAUNCH, **times, gpu=late["gpu"], stream=late["stream"])
        return by

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
        rows = {}
        for name, kind in COLUMNS.items():
            blocks = [block[name] for block in self._blocks] or [pd.Series([], dtype=kind)]
            rows[name] = union_categoricals(blocks) if kind == "category" else np.concatenate(blocks)
        active = pd.Series(rows["phase"]).isin([Phase.KERNEL, Phase.H2D, Phase.D2H, Phase.D2D, Phase.MEMSET])
        if not active.any():
            self.labels.append(NO_GPU)
            self.warnings.append(NO_GPU)
        source: dict[str, Any] = {"format": self.format, "files": [file.name for file in self.paths]}
        source |= {"quantum_ns": quantum_ns, "facts": dict(facts or {})}
        for verb, counted in (("read", self.read), ("dropped", self.dropped), ("bounded", self.bounded)):
            source[verb] = {what: n for what, n in sorted(counted.items()) if n}
            if verb != "read":
                self.warnings += [f"{verb}: {what} ({n:,})" for what, n in source[verb].items()]
        header = {"format_version": FORMAT_VERSION, "run": path.name, "device_kind": "foreign", "source": source}
        header |= {"gpus": list(map(dict, gpus)), "epoch_utc": epoch_utc}
        whole = complete_header(header | {"labels": self.labels, "warnings": self.warnings}, path)
        frame = validate(pd.DataFrame(rows, copy=False), whole, path)
        return Log(frame, whole, None, cut_at, tuple(self.warnings), str(path))


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
