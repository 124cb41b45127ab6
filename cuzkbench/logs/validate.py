"""Rows from any reader become the frame that analysis can trust: columns, dtypes, names, and the rules of a row."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any, get_type_hints

import numpy as np
import pandas as pd

from cuzkbench.events import COLUMNS, ENUMS, FORMAT_VERSION, HEADER, Event, Lane, LogFormatError, Memory, Phase
from cuzkbench.plan import RunPlan

DEVICE_KINDS = ("cuda", "emulated", "simulated", "foreign")
_CPU = (
    Phase.SYNTHESIS, Phase.QUEUE, Phase.PREP, Phase.ALLOC, Phase.STAGE, Phase.FINISH, Phase.VERIFY, Phase.HOST_SYNC,
)  # fmt: skip
LANES = {
    Phase.LOCK_WAIT: Lane.LOCK,
    Phase.LOCK_HOLD: Lane.LOCK,
    Phase.H2D: Lane.COPY_H2D,
    Phase.D2H: Lane.COPY_D2H,
    Phase.KERNEL: Lane.COMPUTE,
    Phase.MEMSET: Lane.COMPUTE,
    Phase.D2D: Lane.COMPUTE,
} | dict.fromkeys(_CPU, Lane.CPU)  # COUNTER and OTHER may lie in any lane
ON_A_GPU = (Phase.PREP, Phase.LOCK_WAIT, Phase.LOCK_HOLD, Phase.STAGE, Phase.H2D, Phase.KERNEL, Phase.D2H, Phase.FINISH)
LATEST_NS = 2**61  # sums and differences of such times stay within int64; until 2043 as nanoseconds since 1970
MOST_BYTES = 2**48  # of one copy: beyond any memory, and the sum over many rows stays within int64
GB_S = (1e-6, 1e6)  # what a line rate can be
_KINDS = {str: "a string", int: "a whole number", list: "a list", dict: "an object"}
_SHAPES: dict[str, type] = {  # what stands in a header and a trailer where it is not null
    "run": str, "kernels": str, "driver": str, "epoch_utc": str, "ended": str, "error": str, "seed": int,
    "labels": list, "warnings": list, "gpus": list,
} | dict.fromkeys(
    ("host", "versions", "plan", "line_rate_gb_s", "clock", "emulation", "source", "hooks", "proofs", "pool"), dict
)  # fmt: skip


def complete_header(header: object, path: object) -> dict[str, Any]:
    """The header with every key of `events.HEADER`, null where it did not say; raises LogFormatError."""
    if not isinstance(header, dict):
        raise LogFormatError(path, "header", f"an object is needed, not {json.dumps(header)[:60]}")
    plain: dict[str, Any] = {"device_kind": "foreign", "kernels": "unknown", "labels": [], "gpus": [], "warnings": []}
    whole = dict.fromkeys(HEADER) | plain | {k: value for k, value in _encodable(header).items() if value is not None}
    _refuse(path, "header", _header_faults(whole))
    return whole


def _encodable(header: dict[str, Any]) -> dict[str, Any]:
    """The header with ? for what UTF-8 does not hold: half of a surrogate pair, as in names of files on Linux."""
    text = json.dumps(header, ensure_ascii=False)
    safe = text.encode("utf-8", "replace").decode()
    return header if safe == text else json.loads(safe)


def possible_trailer(trailer: Any, path: object) -> dict[str, Any] | None:
    """A trailer whose values are of the kinds that analysis counts on; raises LogFormatError."""
    if trailer is None or isinstance(trailer, dict):
        _refuse(path, "trailer", _trailer_faults(trailer or {}))
        return trailer
    raise LogFormatError(path, "trailer", "an object or null is needed")


def _refuse(path: object, where: str, faults: Iterable[str]) -> None:
    """Raise the first fault, where there is one; those behind it may count on its absence."""
    for what in faults:
        raise LogFormatError(path, where, what)


def _header_faults(header: dict[str, Any]) -> Iterator[str]:
    version = header["format_version"]
    if type(version) is not int or version < 1:
        yield f"format_version {version!r}: a number from 1 to {FORMAT_VERSION}"
    if version > FORMAT_VERSION:
        yield f"format_version {version} is newer than {FORMAT_VERSION}: update cuzkbench"
    yield from _shape_faults(header)
    if header["device_kind"] not in DEVICE_KINDS:
        yield f"device_kind {header['device_kind']!r}: one of {', '.join(DEVICE_KINDS)}"
    for key, kind in (("labels", str), ("warnings", str), ("gpus", dict)):
        if not all(isinstance(item, kind) for item in header[key]):
            yield f"{key}: a list of {kind.__name__} is needed"
    numbers = [gpu.get("gpu") for gpu in header["gpus"]]
    if not all(type(number) is int and 0 <= number < 2**15 for number in numbers) or len(set(numbers)) < len(numbers):
        yield "gpus: each entry needs a number 'gpu' of its own from 0 to 32767"
    for way, by in (header["line_rate_gb_s"] or {}).items():
        rates = by.values() if isinstance(by, dict) else [by]
        if not all(rate is None or (_is_number(rate) and GB_S[0] <= rate <= GB_S[1]) for rate in rates):
            yield f"line_rate_gb_s {way}: GB/s from {GB_S[0]:g} to {GB_S[1]:g} or null"
    for name, kinds in get_type_hints(RunPlan).items():
        value = (header["plan"] or {}).get(name)
        if value is None or (isinstance(value, str | bool) and isinstance(value, kinds)):
            continue
        if not (_is_number(value) and abs(value) < 2**63 and isinstance(0, kinds) | isinstance(0.0, kinds)):
            yield f"plan: {name} cannot be {str(value)[:40]!r}"
    memory_bytes = (header["host"] or {}).get("memory_bytes")
    if memory_bytes is not None and not _is_number(memory_bytes):
        yield "host: memory_bytes must be a number"
    if not isinstance((header["source"] or {}).get("format", ""), str):
        yield "source: its format must be a string"


def _trailer_faults(trailer: dict[str, Any]) -> Iterator[str]:
    yield from _shape_faults(trailer)
    for name, keys in (("proofs", ("made", "verified")), ("hooks", ())):
        values = trailer.get(name) or {}
        if values and not all(_is_number(values.get(key)) for key in (*keys, *values)):
            yield f"{name}: {' and '.join(keys) or 'all of it'} as numbers is needed"


def _shape_faults(values: dict[str, Any]) -> Iterator[str]:
    for name, kind in _SHAPES.items():
        value = values.get(name)
        if value is not None and not isinstance(value, kind):
            yield f"{name} {str(value)[:40]!r}: {_KINDS[kind]} is needed"


def _is_number(value: object) -> bool:
    """A finite number, and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -math.inf < value < math.inf


def validate(rows: pd.DataFrame, header: dict[str, Any], path: object = "log") -> pd.DataFrame:
    """A frame with exactly the columns and dtypes of the record, from rows that may lack the defaulted columns.

    `header` is a complete one. Raises LogFormatError naming the first row that breaks a rule, counted from 0.
    """
    if not rows.columns.is_unique:
        raise LogFormatError(path, "columns", "a column stands in it twice")
    if unknown := [str(name) for name in rows.columns if name not in COLUMNS]:
        known = ", ".join(COLUMNS)
        raise LogFormatError(path, "columns", f"unknown columns {', '.join(unknown)}: the record has {known}")
    if missing := [name for name in COLUMNS if name not in rows.columns and name not in Event._field_defaults]:
        raise LogFormatError(path, "columns", f"missing columns {', '.join(missing)}")
    columns = {}
    for name, dtype in COLUMNS.items():
        if name in rows.columns:
            column = rows[name].reset_index(drop=True)
        else:
            column = pd.Series(Event._field_defaults[name], range(len(rows)), "float64" if name == "value" else None)
        columns[name] = _category(column, name, path) if dtype == "category" else _number(column, name, dtype, path)
    frame = pd.DataFrame(columns)
    for broken, what in _rules(frame, header):
        _fail(path, broken, what)
    return frame


def _fail(path: object, broken: Any, what: str) -> None:
    if (rows := np.asarray(broken)).any():
        raise LogFormatError(path, f"row {int(rows.argmax())}", what, f"{int(rows.argmax())} good rows before it")


def _category(column: pd.Series, name: str, path: object) -> pd.Series:
    """Enums get all their members in order, names sorted categories: equal rows have equal codes in any order."""
    try:
        values = column if isinstance(column.dtype, pd.CategoricalDtype) else column.astype("category")
    except TypeError as error:
        raise LogFormatError(path, f"column {name}", f"strings are needed: {error}") from error
    _fail(path, values.isna(), f"{name} is missing")
    values = values.cat.remove_unused_categories()
    accepted = [str(member.value) for member in ENUMS.get(name, ())]
    for value in values.cat.categories:
        if not isinstance(value, str):
            _fail(path, values == value, f"{name} {value!r}: a string is needed")
        if accepted and value not in accepted:
            _fail(path, values == value, f"{name} {value[:80]!r}: one of {', '.join(accepted)}")
    return values.cat.set_categories(pd.Index(accepted or sorted(values.cat.categories), dtype="str"))


def _number(column: pd.Series, name: str, dtype: str, path: object) -> pd.Series:
    if str(column.dtype) == dtype:
        return column
    try:
        cast = column.astype(np.dtype(dtype))
        same = (cast == column).to_numpy(bool, na_value=False) | ((dtype == "float64") & column.isna().to_numpy())
    except (ValueError, TypeError, OverflowError) as error:
        raise LogFormatError(path, f"column {name}", f"{dtype} is needed: {error}") from error
    _fail(path, ~same, f"{name} does not fit {dtype}")
    return cast


def _rules(frame: pd.DataFrame, header: dict[str, Any]) -> Iterator[tuple[Any, str]]:
    """Which rows break a rule, and the rule."""
    start, end, gpu, value = (frame[name].to_numpy() for name in ("start_ns", "end_ns", "gpu", "value"))
    late = (np.minimum(start, end) < -LATEST_NS) | (np.maximum(start, end) > LATEST_NS)  # abs of -2^63 is negative
    yield late, f"a time beyond {LATEST_NS} ns: not a run's epoch"
    yield end < start, "end_ns is before start_ns"
    yield ~frame["bytes"].between(0, MOST_BYTES), f"bytes below 0 or beyond {MOST_BYTES}"
    for name in ("partition", "gpu", "worker", "stream"):
        yield frame[name] < -1, f"{name} below -1"
    if named := [entry["gpu"] for entry in header["gpus"]]:
        yield ~np.isin(gpu, [-1, *named]), f"a gpu that the header does not name: it names {named}"
    phase, lanes = frame["phase"], list(Lane)
    wanted = np.array([lanes.index(LANES[p]) if p in LANES else -1 for p in Phase])[phase.cat.codes]
    yield (wanted >= 0) & (frame["lane"].cat.codes != wanted), "the phase does not lie in that lane"
    copies = phase.isin([Phase.H2D, Phase.D2H])
    yield copies & (frame["memory"] == Memory.NONE), "a copy without its memory: UNKNOWN where nobody knows"
    yield (phase == Phase.COUNTER) & ~np.isfinite(value), "a COUNTER without a finite value"
    yield np.isinf(value), "an infinite value"
    if header["device_kind"] != "foreign":
        yield (gpu < 0) & phase.isin(ON_A_GPU), "a GPU phase without its gpu"
