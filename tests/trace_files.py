"""Small trace files of foreign schemas, written by hand: Nsight exports of several versions, Chrome events."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

SHARED = Path(__file__).parents[1].parent / "shared"
PID = 0x1000000  # a globalPid is a multiple of it, a globalTid adds the thread

_OPERATION = "start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, streamId INTEGER, correlationId INTEGER"
TABLES = {  # as in schema 3.25
    "StringIds": "id INTEGER PRIMARY KEY, value TEXT",
    "META_DATA_EXPORT": "name TEXT, value TEXT",
    "CUPTI_ACTIVITY_KIND_KERNEL": f"{_OPERATION}, globalPid INTEGER, demangledName INTEGER, shortName INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMCPY": f"{_OPERATION}, globalPid INTEGER, bytes INTEGER, copyKind INTEGER, srcKind INTEGER,"
    " dstKind INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{_OPERATION}, globalPid INTEGER, value INTEGER, bytes INTEGER, memKind INTEGER",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": f"{_OPERATION}, globalPid INTEGER, graphId INTEGER",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": f"{_OPERATION}, globalPid INTEGER, syncType INTEGER, eventId INTEGER",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER,"
    " correlationId INTEGER, nameId INTEGER, returnValue INTEGER",
    "NVTX_EVENTS": "start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER, globalTid INTEGER",
    "OSRT_API": "start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER, nameId INTEGER",
    "PROFILER_OVERHEAD": "start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER, returnValue INTEGER",
    "TARGET_INFO_GPU": "id INTEGER, name TEXT, cuDevice INTEGER, smCount INTEGER, totalMemory INTEGER",
    "TARGET_INFO_CUDA_DEVICE": "gpuId INTEGER, cudaId INTEGER, pid INTEGER",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs INTEGER",
    "TARGET_INFO_SYSTEM_ENV": "name TEXT, value TEXT",
}
# what each version lacks: tables, then columns
VERSIONS: dict[str, tuple[dict[str, str], dict[str, tuple[str, ...]]]] = {
    "3.25.0": ({}, {}),
    "3.1.2": ({"META_DATA_EXPORT": "EXPORT_META_DATA"}, {"NVTX_EVENTS": ("text",)}),
    "2.7.0": ({"META_DATA_EXPORT": "EXPORT_META_DATA"}, {"NVTX_EVENTS": ("textId",)}),
    "oldest": ({"META_DATA_EXPORT": ""}, {"TARGET_INFO_GPU": ("id", "cuDevice", "smCount", "totalMemory")}),
    "stripped": ({"META_DATA_EXPORT": ""}, {"CUPTI_ACTIVITY_KIND_MEMCPY": ("srcKind", "dstKind")}),
}


def nsight(path: Path, rows: dict[str, list[dict[str, Any]]], version: str = "3.25.0") -> Path:
    """An export that holds these rows, with only the tables that hold some; names are put into StringIds."""
    renamed, lacking = VERSIONS[version]
    strings: dict[str, int] = {}
    columns_of_names = ("nameId", "shortName", "demangledName", "textId")
    connection = sqlite3.connect(path)
    for table, entries in {"META_DATA_EXPORT": [{"name": "EXPORT_SCHEMA_VERSION", "value": version}], **rows}.items():
        name = renamed.get(table, table)
        if not name:
            continue
        kept = [c for c in TABLES[table].split(", ") if c.split()[0] not in lacking.get(table, ())]
        connection.execute(f'CREATE TABLE "{name}" ({", ".join(kept) or "vmId INTEGER"})')
        names = [column.split()[0] for column in kept]
        for entry in entries:
            values = [entry.get(column) for column in names]
            for index, column in enumerate(names):
                if column in columns_of_names and isinstance(values[index], str):
                    values[index] = strings.setdefault(values[index], 100 + len(strings))
            connection.execute(f'INSERT INTO "{name}" VALUES ({", ".join("?" * len(values))})', values)
    connection.execute(f"CREATE TABLE StringIds ({TABLES['StringIds']})")
    connection.executemany("INSERT INTO StringIds VALUES (?, ?)", [(number, text) for text, number in strings.items()])
    connection.commit()
    connection.close()
    return path


def operation(start: int, end: int, correlation: int = 0, pid: int = 1, device: int = 0, **more: Any) -> dict[str, Any]:
    """One device operation of a process."""
    plain = {"deviceId": device, "contextId": 1, "streamId": 7, "correlationId": correlation, "globalPid": pid * PID}
    return {"start": start, "end": end} | plain | more


def call(start: int, end: int, name: str, correlation: int = 0, pid: int = 1, thread: int = 5) -> dict[str, Any]:
    """One runtime or system call of a thread."""
    return {"start": start, "end": end, "globalTid": pid * PID + thread, "correlationId": correlation, "nameId": name}


def event(category: str, name: str, ts: Any, dur: Any, device: int | str = 0, **args: Any) -> dict[str, Any]:
    """One X event; device -1 for a host thread."""
    identity = {"pid": 4711, "tid": 4711} if device == -1 else {"pid": device, "tid": 7}
    return {"ph": "X", "cat": category, "name": name, "ts": ts, "dur": dur, **identity, "args": args}


def chrome(path: Path, events: list[Any], **members: Any) -> Path:
    """A trace object in a file."""
    path.write_text(json.dumps({"schemaVersion": 1, **members, "traceEvents": events}))
    return path
