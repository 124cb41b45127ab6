"""Our own log files: JSON Lines, readable after a kill, and Parquet for keeping. File -> validated Log and back.

JSON Lines: {"header": …}, one object a row without the values that equal `events.Event`'s defaults and without
`run`, then {"trailer": …}. Parquet: the same columns; header and trailer as JSON in the schema's metadata.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.parquet as pq

from cuzkbench.events import COLUMNS, Event, LogFormatError
from cuzkbench.logs.limits import Limits, Source, head, printable
from cuzkbench.logs.log import Log
from cuzkbench.logs.validate import complete_header, possible_trailer, validate
from cuzkbench.outputs import replacing

_ARROW = {"category": pa.string(), "bool": pa.bool_(), "float64": pa.float64()}
_JSON_SCHEMA = pa.schema([(n, _ARROW.get(d) or pa.type_for_alias(d)) for n, d in COLUMNS.items()])
_NAMES = pa.dictionary(pa.int32(), pa.string())
_PARQUET_SCHEMA = pa.schema([(f.name, _NAMES if COLUMNS[f.name] == "category" else f.type) for f in _JSON_SCHEMA])
_BLOCK_BYTES = 4 << 20  # a row is some 200 bytes; longer lines than a block cannot be read
_HEADER, _TRAILER, _CUT = b"cuzkbench.header", b"cuzkbench.trailer", b"cuzkbench.cut_at"


def sniff(first: bytes, path: Path) -> bool:
    """Whether a file's first bytes are a native log's, its JSON Lines packed or not."""
    return first.startswith(b"PAR1") or re.match(rb'\s*\{\s*"header"', head(first)) is not None


def read(path: Path, max_bytes: int | None = None, max_rows: int | None = None) -> Log:
    """A native log, JSON Lines (packed with gzip or not) or Parquet by content; raises LogFormatError."""
    limits = Limits.of(max_bytes, max_rows)
    with path.open("rb") as file:
        parquet = file.read(4) == b"PAR1"
    return _read_parquet(path, limits) if parquet else _read_jsonl(path, limits)


def write(log: Log, path: Path) -> None:
    """Write by suffix, .jsonl or .parquet, through a temporary file beside the target that replaces it at the end."""
    writers: dict[str, Callable[[Log, Any], None]] = {".jsonl": _write_jsonl, ".parquet": _write_parquet}
    if path.suffix not in writers:
        raise ValueError(f"log {path}: a name that ends in {' or '.join(writers)} is needed")
    with replacing(path) as temporary, temporary.open("wb") as file:
        writers[path.suffix](log, file)


def _json(path: object, where: str, text: bytes | bytearray) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LogFormatError(path, where, f"not JSON: {error}") from error


def _read_jsonl(path: Path, limits: Limits) -> Log:
    data, source = bytearray(), Source(path, limits)
    for chunk in source:
        data += chunk
    limits.rows(path, data.count(b"\n"))
    first = data.find(b"\n") + 1
    if not first:
        raise LogFormatError(path, f"byte {len(data)}", "the log ends inside its header: it holds no event")
    opening = _json(path, "line 1", data[:first])
    if not isinstance(opening, dict) or "header" not in opening:
        raise LogFormatError(path, "line 1", 'the first line must be {"header": …}')
    header = complete_header(opening["header"], path)
    end = data.rfind(b"\n") + 1  # what follows the last newline was cut,
    if _object(data[end:]):  # unless it lost nothing else
        end = len(data)
    start = data.rfind(b"\n", 0, end - 1) + 1
    closing = _object(data[start:end]) if start >= first else {}
    ended, cut_at = "trailer" in closing, None
    if source.cut or not ended or not data.endswith(b"\n"):
        missing = "the last newline is missing, no row was lost" if ended else "the log ends without its trailer"
        line = data.count(b"\n", 0, end) + 1
        cut_at = f"line {line}, byte {len(data)}: {source.cut or missing}"
    frame = _rows(path, memoryview(data)[first : start if ended else end], header)
    if cut_at and len(frame) == 0:
        raise LogFormatError(path, cut_at, "the log holds no event", "only its header was read")
    trailer = possible_trailer(closing.get("trailer"), path)
    return Log(frame, header, trailer, cut_at, _warnings(header, trailer), str(path))


def _warnings(header: dict[str, Any], trailer: dict[str, Any] | None) -> tuple[str, ...]:
    """The header's, and that the run ended early where the trailer says so."""
    ended, error = ((trailer or {}).get(key) for key in ("ended", "error"))
    if ended in (None, "done"):
        return tuple(header["warnings"])
    why = f"{ended}: {printable(error)}" if error else str(ended)
    return (*header["warnings"], f"The run ended early ({why}): this log holds what was finished.")


def _object(text: bytes | bytearray) -> dict[str, Any]:
    """The object in a line, empty where the line holds none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _parse(body: Any) -> pa.Table:
    options = pj.ParseOptions(explicit_schema=_JSON_SCHEMA, unexpected_field_behavior="error")
    table = pj.read_json(pa.BufferReader(body), pj.ReadOptions(block_size=_BLOCK_BYTES), options)
    table.validate(full=True)  # text that is not UTF-8
    return table


def _rows(path: Path, body: memoryview, header: dict[str, Any]) -> pd.DataFrame:
    """The frame of the row lines; where one is bad, the first such line is found and named."""
    try:
        table = _parse(body) if len(body) else _JSON_SCHEMA.empty_table()
    except pa.ArrowInvalid:
        raise _bad_line(path, body) from None
    defaults = Event._field_defaults | {"run": header["run"]}
    columns = {name: table[name] for name in COLUMNS}
    for name, column in columns.items():
        if name not in defaults and column.null_count:
            row = pc.index(pc.is_null(column), pa.scalar(True)).as_py()
            raise LogFormatError(path, f"line {row + 2}", f"{name} is missing", f"{row} rows before it")
        if defaults.get(name) is not None:
            columns[name] = pc.fill_null(column, defaults[name])
    return validate(pa.table(columns).to_pandas(strings_to_categorical=True), header, path)


def _refusal(body: bytes) -> str:
    """Why these lines cannot be parsed, "" where they can."""
    try:
        _parse(body)
    except pa.ArrowInvalid as error:
        return printable(error)
    return ""


def _bad_line(path: Path, body: memoryview) -> LogFormatError:
    """Halve towards the first line that cannot be parsed: as much work as parsing the body once more."""
    lines = bytes(body).splitlines(keepends=True)
    low, high = 0, len(lines)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _refusal(b"".join(lines[low:middle])) else (middle, high)
    found = f"{_refusal(lines[low])}: {lines[low][:80].decode('utf-8', 'replace')!r}"
    if re.search(rb'\{\s*"header"\s*:', b"".join(lines[low : low + 2])):  # here, or after the first run's trailer
        found = "a second header: several runs were written into this file, one after another"
    return LogFormatError(path, f"line {low + 2}", found, f"{low} rows were read before it")


def _fragments(name: str, column: pd.Series, opening: str) -> pa.Array:
    """One column as JSON text with its key, empty where it equals the default."""
    key = f"{opening}{json.dumps(name)}:"
    if isinstance(column.dtype, pd.CategoricalDtype):
        texts = pa.array([key + json.dumps(value) for value in column.cat.categories], pa.string())
        texts = texts.take(pa.array(column.cat.codes.to_numpy(np.int32)))
    elif column.dtype == bool:
        texts = pc.if_else(pa.array(column.to_numpy()), key + "true", key + "false")
    else:
        texts = pc.binary_join_element_wise(
            key, pc.cast(pa.array(column.to_numpy(), from_pandas=True), pa.string()), ""
        )
    if name not in Event._field_defaults:
        return texts
    default = Event._field_defaults[name]
    omitted = (column.isna() if default is None else column == default).to_numpy()
    return pc.fill_null(pc.if_else(pa.array(omitted), "", texts), "")


def _write_jsonl(log: Log, file: Any) -> None:
    file.write(json.dumps({"header": log.header}).encode() + b"\n")
    for first in range(0, len(log.frame), 1 << 18):
        part = log.frame.iloc[first : first + (1 << 18)]
        own_run = bool((part["run"] == log.header["run"]).all())
        names = [name for name in COLUMNS if not (name == "run" and own_run)]
        texts = [_fragments(name, part[name], "{" if index == 0 else ",") for index, name in enumerate(names)]
        for line in pc.binary_join_element_wise(*texts, "}\n", "").to_pylist():
            file.write(line.encode())
    if log.cut_at is None:
        file.write(json.dumps({"trailer": log.trailer}).encode() + b"\n")


def _write_parquet(log: Log, file: Any) -> None:
    table = pa.Table.from_pandas(log.frame, schema=_PARQUET_SCHEMA, preserve_index=False)
    metadata = {_HEADER: json.dumps(log.header), _TRAILER: json.dumps(log.trailer)}
    if log.cut_at is not None:
        metadata[_CUT] = log.cut_at
    pq.write_table(table.replace_schema_metadata(metadata), file, compression="zstd", write_page_checksum=True)


def _read_parquet(path: Path, limits: Limits) -> Log:
    try:
        with path.open("rb") as raw, pq.ParquetFile(raw, page_checksum_verification=True) as file:
            limits.rows(path, file.metadata.num_rows)
            table = file.read()
        table.validate(full=True)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise LogFormatError(path, "Parquet", f"cut or damaged, its index is at its end: {printable(error)}") from error
    metadata = table.schema.metadata or {}
    if _HEADER not in metadata:
        raise LogFormatError(path, "Parquet metadata", "no cuzkbench.header: another program's file")
    header = complete_header(_json(path, "cuzkbench.header", metadata[_HEADER]), path)
    trailer = _json(path, "cuzkbench.trailer", metadata.get(_TRAILER, b"null"))
    cut_at = metadata[_CUT].decode("utf-8", "replace") if _CUT in metadata else None
    plain = table.replace_schema_metadata().unify_dictionaries()  # nothing in the metadata is unpickled or decoded
    frame = validate(plain.to_pandas(), header, path)
    trailer = possible_trailer(trailer, path)
    return Log(frame, header, trailer, cut_at, _warnings(header, trailer), str(path))
