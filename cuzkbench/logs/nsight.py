"""Nsight Systems SQLite exports, of every schema from the oldest to today's -> Log.

Processes and devices are kept apart; host rows are OTHER, blocking ones HOST_SYNC; our own NVTX ranges give
partitions and workers back. See FORMATS.md for versions and for what this format cannot tell.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cuzkbench.events import Lane, LogFormatError, Memory, Phase
from cuzkbench.logs.chrome_kinds import BLOCKING
from cuzkbench.logs.foreign import Foreign, number, utc
from cuzkbench.logs.limits import Limits, printable
from cuzkbench.logs.log import Log
from cuzkbench.logs.nsight_names import LOCK_WAITS, Own, bare, copy_of, own_range
from cuzkbench.logs.nsight_tables import MISSING, Export
from cuzkbench.logs.validate import LANES, MOST_BYTES

_CUPTI = "CUPTI_ACTIVITY_KIND_"
KERNEL, MEMCPY, MEMSET, GRAPH = OPERATIONS = tuple(_CUPTI + n for n in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"))
SYNC, RUNTIME, NVTX, OSRT = _CUPTI + "SYNCHRONIZATION", _CUPTI + "RUNTIME", "NVTX_EVENTS", "OSRT_API"
OVERHEADS = ("PROFILER_OVERHEAD", _CUPTI + "OVERHEAD")
UNREAD = (_CUPTI + "CUDA_EVENT", "SCHED_EVENTS", "COMPOSITE_EVENTS", "GPU_METRICS", "DIAGNOSTIC_EVENT")
MARKS_OF_AN_EXPORT = {"StringIds", "EXPORT_META_DATA", "META_DATA_EXPORT", *OPERATIONS, RUNTIME, NVTX}
SYNCS = ("Unknown sync", "Event sync", "Stream wait event", "Stream sync", "Context sync")
STREAM_WAIT = 2  # makes a stream wait, no host thread
NO_CALL = -(2**62)  # the key of operations that name no call
KEPT_META = ("EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION")
_PUSH_POP, _START_END = 59, 60


def sniff(first: bytes, path: Path) -> bool:
    """Whether a file's first bytes are SQLite's."""
    return first.startswith(b"SQLite format 3\0")


def read(path: Path, max_bytes: int | None = None, max_rows: int | None = None) -> Log:
    """The log in one export; raises LogFormatError for another SQLite file."""
    limits, out = Limits.of(max_bytes, max_rows), Foreign("nsight", [path])
    cut = _shortage(path)
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            export = Export(path, connection, limits, out)
            export.cut = cut
            return _Reader(export, out).log()
    except (sqlite3.Error, UnicodeDecodeError) as error:  # SQLite's words may quote the file's bytes
        raise LogFormatError(path, cut or "SQLite", f"nothing is left to read: {printable(error)}") from error


def _shortage(path: Path) -> str | None:
    """Where the file ends, if its header states more pages than it holds."""
    with path.open("rb") as file:
        first = file.read(100)
    page = int.from_bytes(first[16:18], "big")
    stated, size = (65536 if page == 1 else page) * int.from_bytes(first[28:32], "big"), path.stat().st_size
    return f"byte {size}: the file ends, its header states {stated} bytes" if size < stated else None


def _pid(serial: pd.Series) -> pd.Series:
    """The process number in a globalPid or globalTid, -1 without."""
    return (serial // 0x1000000 % 0x1000000).where(serial > 0, -1)


class _Reader:
    """Table by table into blocks of rows."""

    def __init__(self, export: Export, out: Foreign) -> None:
        self.export, self.out = export, out
        if not export.tables & MARKS_OF_AN_EXPORT:
            raise LogFormatError(export.path, "SQLite", "a database, but no Nsight Systems export")
        calls = export.intervals(RUNTIME, "globalTid", "correlationId", "nameId")
        self.calls = calls.assign(pid=_pid(calls["globalTid"]), gpu=-1).sort_values("start_ns", ignore_index=True)
        identity = ("deviceId", "contextId", "streamId", "correlationId", "globalPid")
        details = ("bytes", "copyKind", "srcKind", "dstKind", "shortName", "demangledName")
        tables = [export.intervals(table, *identity, *details).assign(table=table) for table in OPERATIONS]
        self.operations = pd.concat(tables, ignore_index=True)
        self.operations["pid"] = _pid(self.operations["globalPid"])
        self.ranges = self._ranges()
        self.gpus = self._number()
        self._join()

    def _number(self) -> list[dict[str, Any]]:
        """A GPU for each device of each process, or one where the export says that they are one physical device."""
        mapped = self.export.frame("TARGET_INFO_CUDA_DEVICE", "pid", "cudaId", "gpuId").itertuples(index=False)
        physical = {(pid, device): gpu for pid, device, gpu in mapped}
        pairs = list(zip(self.operations["pid"].tolist(), self.operations["deviceId"].tolist(), strict=True))
        sharing: dict[Any, list[tuple[int, int]]] = {}
        for pair in sorted(set(pairs)):
            sharing.setdefault(physical.get(pair, pair), []).append(pair)
        numbers = number(self.export.path, [members[0] for members in sharing.values()])
        facts = ("smCount", "totalMemory", "asyncEngines")
        known = self.export.frame("TARGET_INFO_GPU", "id", "cuDevice", "deviceId", *facts, text="name")
        gpu_of: dict[tuple[int, int], int] = {}
        gpus: list[dict[str, Any]] = []
        for first, *others in sharing.values():
            gpu_of |= dict.fromkeys([first, *others], numbers[first])
            named = known[known["id"] == physical[first] if first in physical else known["cuDevice"] == first[1]]
            if named.empty and first not in physical:
                named = known[(known["id"] == first[1]) | (known["deviceId"] == first[1])]
            entry = {"gpu": numbers[first], "device": "unknown device", "device_id": first[1]}
            for row in named.head(1).to_dict("records"):
                entry |= {"device": row["name"] or "unknown device"} | {n: row[n] for n in facts if row[n] != MISSING}
            gpus.append(entry | {"processes": [pid for pid, _ in (first, *others)]})
            if others:
                shared = f"GPU {numbers[first]} is shared by {1 + len(others)} processes, taken together"
                self.out.warnings.append(shared)
        self.operations["gpu"] = np.array([gpu_of[pair] for pair in pairs], np.int64)
        return gpus

    def _join(self) -> None:
        """Operations and the calls that launched them; the own range last begun on the launching thread names both."""
        calls, operations = self.calls, self.operations
        anonymous = bool((operations["pid"] == -1).all())  # stripped files lack the process
        for rows in (calls, operations):
            rows["key"] = (0 if anonymous else rows["pid"]) * 2**32 + rows["correlationId"]
        operations["key"] = operations["key"].where(operations["correlationId"] >= 0, NO_CALL)
        operations["stream"] = operations["streamId"].clip(lower=-1)
        by = self.out.launches(calls, operations)
        joined = np.flatnonzero(by >= 0)
        calls.loc[by[joined], "gpu"] = operations["gpu"].to_numpy()[joined]
        calls["gpu"] = calls["gpu"].where(calls["gpu"] >= 0, self._gpu_of_process(calls["pid"]))
        launched = calls.loc[by[joined], ["start_ns", "globalTid"]].assign(row=joined)
        own = self.ranges[self.ranges["own"]][["start_ns", "globalTid", "job", "partition", "worker"]]
        named = pd.merge_asof(launched.sort_values("start_ns"), own, on="start_ns", by="globalTid").set_index("row")
        nobody = {"job": "", "partition": -1, "worker": -1}
        operations[list(nobody)] = named.reindex(operations.index)[list(nobody)].fillna(nobody)

    def _gpu_of_process(self, pids: pd.Series) -> pd.Series:
        """The GPU of processes that use one, -1 for others."""
        used = self.operations.groupby("pid")["gpu"].agg(["min", "max"])
        return pids.map(used["min"].where(used["min"] == used["max"], -1)).fillna(-1).astype("int64")

    def _ranges(self) -> pd.DataFrame:
        """NVTX ranges by start, with their texts, own ones in their parts."""
        ranges = self.export.frame(NVTX, "start", "end", "eventType", "textId", "globalTid", text="text")
        kept = ranges["eventType"].isin([_PUSH_POP, _START_END])
        self.out.dropped["NVTX marks, categories and domains, without an interval"] += int((~kept).sum())
        ranges = ranges[kept].copy()
        unclosed = ranges["end_ns"] == MISSING
        self.out.bounded["NVTX ranges never closed, taken to last until the trace ends"] += int(unclosed.sum())
        ends = np.concatenate([self.operations["end_ns"], self.calls["end_ns"]]).astype(np.int64)
        ranges.loc[unclosed, "end_ns"] = ranges.loc[unclosed, "start_ns"].clip(lower=ends.max(initial=MISSING))
        ids, names = self.export.strings(ranges["textId"])
        ranges["text"] = ranges["text"].where(ranges["text"] != "", np.array([*names, ""], object)[ids])
        ranges = self.export.possible(NVTX, ranges).sort_values("start_ns", ignore_index=True)
        codes, texts = pd.factorize(ranges["text"])
        found = [own_range(text) for text in texts]
        parts = pd.DataFrame([own or Own() for own in found], columns=Own._fields, dtype=object)
        parts["own"] = np.array([own is not None for own in found], bool)
        return ranges.join(parts.iloc[codes].reset_index(drop=True))

    def log(self) -> Log:
        export = self.export
        for table, rows in self.operations.groupby("table", sort=False):
            self._operations(str(table), rows)
        self._called(self.calls, BLOCKING.match, True)
        waits = export.intervals(OSRT, "globalTid", "nameId")
        waits["gpu"] = self._gpu_of_process(_pid(waits["globalTid"]))
        launching = waits["globalTid"].isin(set(self.calls["globalTid"]))  # other threads wait for work all day long
        self._called(waits, LOCK_WAITS.fullmatch, launching)
        self._syncs(export.intervals(SYNC, "globalPid", "contextId", "streamId", "syncType"))
        self._own_rows()
        for table in OVERHEADS:
            rows = export.intervals(table, "globalTid", "nameId")
            self._called(rows.assign(gpu=-1), BLOCKING.match, False, "profiler overhead: ")
        self.out.dropped["rows of tables that are not read"] += sum(map(export.count, UNREAD))
        tables = ("EXPORT_META_DATA", "META_DATA_EXPORT")
        meta = {key: value for table in tables for key, value in export.rows(table, ("name", "value"))}
        began = export.frame("TARGET_INFO_SESSION_START_TIME", "utcEpochNs")["utcEpochNs"].tolist()
        facts = {key: str(meta[key])[:60] for key in KEPT_META if key in meta}
        return self.out.log(self.gpus, facts, export.cut, utc(began[0]) if began else None)

    def _called(self, rows: pd.DataFrame, waits: Callable[[str], Any], among: Any, what: str = "") -> None:
        """Calls by their names without versions; those that `waits` matches make the threads `among` them wait."""
        codes, names = self.export.strings(rows["nameId"])
        names = [bare(name) for name in names]
        blocking = np.array([waits(name) is not None for name in names], bool)[codes] & among
        self._host(rows, (codes, [what + name for name in names]), blocking)

    def _host(self, rows: pd.DataFrame, names: Any, blocking: Any) -> None:
        codes = np.broadcast_to(np.asarray(blocking, bool), len(rows)).astype(np.int64)
        columns = dict(rows[["start_ns", "end_ns", "gpu"]])
        self.out.add(len(rows), phase=(codes, [Phase.OTHER, Phase.HOST_SYNC]), name=names, **columns)

    def _operations(self, table: str, rows: pd.DataFrame) -> None:
        block: dict[str, Any] = {"phase": Phase.KERNEL, "lane": Lane.COMPUTE, "name": "CUDA graph"}
        if table == KERNEL:
            ids = rows["shortName"].where(rows["shortName"] != MISSING, rows["demangledName"])
            block["name"] = self.export.strings(ids)
        elif table == GRAPH:
            self.out.bounded["CUDA graphs recorded as a whole, taken as busy throughout"] += len(rows)
        else:
            block["bytes"] = rows["bytes"].where(rows["bytes"].between(0, MOST_BYTES), 0)
        if table == MEMSET:
            block |= {"phase": Phase.MEMSET, "name": "Memset (Device)"}
        elif table == MEMCPY:
            codes, kinds = pd.MultiIndex.from_frame(rows[["copyKind", "srcKind", "dstKind"]]).factorize()
            copies = pd.DataFrame([copy_of(*kind) for kind in kinds], columns=["phase", "lane", "memory", "name"])
            block |= {str(name): (codes, texts) for name, texts in copies.items()}
            unknown = (copies["phase"] == Phase.D2D) & (copies["memory"] == Memory.UNKNOWN)
            self.out.bounded["copies of unknown direction, taken as within the device"] += int(unknown[codes].sum())
        block |= dict(rows[["start_ns", "end_ns", "job", "partition", "worker", "gpu", "stream"]])
        self.out.add(len(rows), clock="DEVICE", **block)

    def _syncs(self, rows: pd.DataFrame) -> None:
        """Synchronisations; their deviceId can be wrong, so the GPU comes from the context or the process."""
        owners = self.operations.drop_duplicates(["pid", "contextId"])[["pid", "contextId", "gpu"]]
        rows = rows.assign(pid=_pid(rows["globalPid"])).merge(owners, "left", ["pid", "contextId"])
        rows["gpu"] = rows["gpu"].fillna(self._gpu_of_process(rows["pid"])).astype("int64")
        kinds = rows["syncType"].where(rows["syncType"].between(0, len(SYNCS) - 1), 0)
        self._host(rows, (kinds, list(SYNCS)), ~kinds.isin([0, STREAM_WAIT]))

    def _own_rows(self) -> None:
        """NVTX ranges: other programs' as they are, ours as the rows of their partitions."""
        ranges = self.ranges
        workers = self.operations[self.operations["worker"] >= 0].groupby("worker")["gpu"].first()
        ranges["gpu"] = self._gpu_of_process(_pid(ranges["globalTid"]))
        ranges["gpu"] = ranges["worker"].map(workers).fillna(ranges["gpu"]).astype("int64")
        others = ranges[~ranges["own"]]
        self._host(others, others["text"], False)
        own = ranges[ranges["own"]].copy()
        label = own["phase"].isin([Phase.H2D, Phase.KERNEL, Phase.D2H, Phase.COUNTER])  # the device rows say when
        self.out.read["own NVTX ranges that name device rows"] += int(label.sum())
        own = own[~label]
        early = own["phase"].isin([Phase.SYNTHESIS, Phase.QUEUE])
        own.loc[early, ["gpu", "worker"]] = -1
        lanes = [LANES.get(Phase[phase], Lane.CPU) for phase in own["phase"]]
        columns = dict(own[["start_ns", "end_ns", "job", "partition", "worker", "gpu", "phase", "name"]])
        self.out.add(len(own), lane=lanes, **columns)
