"""Nsight Systems SQLite exports, of every schema from the oldest to today's -> Log.

Processes and devices are kept apart; host rows are OTHER, blocking ones HOST_SYNC; our own NVTX ranges give
partitions and workers back. See FORMATS.md for versions and for what this format cannot tell.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cuzkbench.events import Lane, LogFormatError, Memory, Phase
from cuzkbench.logs.chrome_kinds import BLOCKING
from cuzkbench.logs.foreign import Foreign, launches, number, utc
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
                self.out.warnings.append(
                    f"GPU {numbers[first]} is shared by {1 + len(others)} processes, taken together"
                )
        self.operations["gpu"] = np.array([gpu_of[pair] for pair in pairs], np.int64)
        return gpus

    def _join(self) -> None:
        """Operations and the calls that launched them; the own range last begun on the launching thread names both."""
        calls, operations = self.calls, self.operations
        anonymous = bool((operations["pid"] == -1).all())  # stripped files lack the process
        keys = [((0 if anonymous else f["pid"]) * 2**32 + f["correlationId"]).to_numpy() for f in (calls, operations)]
        by = np.where(operations["correlationId"] < 0, -1, launches(*keys))
        joined = by >= 0
        calls.loc[by[joined], "gpu"] = operations["gpu"].to_numpy()[joined]
        calls["gpu"] = calls["gpu"].where(calls["gpu"] >= 0, self._gpu_of_process(calls["pid"]))
        called, threads = (calls[name].to_numpy()[by[joined]] for name in ("start_ns", "globalTid"))
        started, gpu, stream = (operations[name].to_numpy()[joined] for name in ("start_ns", "gpu", "streamId"))
        self.out.launched(by[joined], called, started, gpu=gpu, stream=np.maximum(stream, -1))
        begun = np.full(len(called), -1)
        for thread, own in self.ranges[self.ranges["own"]].groupby("globalTid"):
            here = threads == thread
            last = own["start_ns"].searchsorted(called[here], side="right") - 1
            begun[here] = np.where(last >= 0, own.index.to_numpy()[last], -1)
        for name, nobody in (("job", ""), ("partition", -1), ("worker", -1)):
            known = np.full(len(operations), nobody, object)
            known[joined] = np.array([*self.ranges[name], nobody], object)[begun]
            operations[name] = known if name == "job" else known.astype(np.int64)

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
        ranges["text"] = ranges["text"].where(ranges["text"] != "", self.export.strings(ranges["textId"]))
        ranges = self.export.possible(NVTX, ranges).sort_values("start_ns", ignore_index=True)
        codes, texts = pd.factorize(ranges["text"])
        parts = [own_range(text) for text in texts]
        for index, name in enumerate(Own._fields):
            ranges[name] = np.array([(own or Own())[index] for own in parts], object)[codes] if parts else []
        return ranges.assign(own=np.array([own is not None for own in parts], bool)[codes] if parts else False)

    def log(self) -> Log:
        """All rows, then the header."""
        export = self.export
        for table, rows in self.operations.groupby("table", sort=False):
            self._operations(str(table), rows)
        names = self._names(self.calls)
        self._host(self.calls, names, [BLOCKING.match(name) is not None for name in names])
        waits = export.intervals(OSRT, "globalTid", "nameId")
        waits["gpu"] = self._gpu_of_process(_pid(waits["globalTid"]))
        launching = set(self.calls["globalTid"])  # other threads wait for work all day long
        names = self._names(waits)
        locks = waits["globalTid"].isin(launching) & np.array(
            [LOCK_WAITS.fullmatch(n) is not None for n in names], bool
        )
        self._host(waits, names, locks)
        self._syncs(export.intervals(SYNC, "globalPid", "contextId", "streamId", "syncType"))
        self._own_rows()
        for table in OVERHEADS:
            rows = export.intervals(table, "globalTid", "nameId")
            self._host(rows.assign(gpu=-1), "profiler overhead: " + self._names(rows), False)
        self.out.dropped["rows of tables that are not read"] += sum(map(export.count, UNREAD))
        tables = ("EXPORT_META_DATA", "META_DATA_EXPORT")
        meta = {key: value for table in tables for key, value in export.rows(table, ("name", "value"))}
        began = export.frame("TARGET_INFO_SESSION_START_TIME", "utcEpochNs")["utcEpochNs"].tolist()
        facts = {key: str(meta[key])[:60] for key in KEPT_META if key in meta}
        return self.out.log(self.gpus, facts, export.cut, utc(began[0]) if began else None)

    def _names(self, rows: pd.DataFrame) -> np.ndarray:
        """API names without their versions."""
        codes, names = pd.factorize(self.export.strings(rows["nameId"]))
        return np.array([bare(name) for name in names] or [""], object)[codes]

    def _host(self, rows: pd.DataFrame, names: Any, blocking: Any) -> None:
        """Rows of host threads."""
        codes = np.broadcast_to(np.asarray(blocking, bool), len(rows)).astype(np.int64)
        self.out.add(
            len(rows), phase=(codes, [Phase.OTHER, Phase.HOST_SYNC]), name=names, **rows[["start_ns", "end_ns", "gpu"]]
        )

    def _operations(self, table: str, rows: pd.DataFrame) -> None:
        """Kernels, whole graphs, copies and memsets."""
        block: dict[str, Any] = {"phase": Phase.KERNEL, "lane": Lane.COMPUTE}
        if table == KERNEL:
            block["name"] = self.export.strings(
                rows["shortName"].where(rows["shortName"] != MISSING, rows["demangledName"])
            )
        elif table == GRAPH:
            block["name"] = "CUDA graph"
            self.out.bounded["CUDA graphs recorded as a whole, taken as busy throughout"] += len(rows)
        elif table == MEMSET:
            block |= {
                "phase": Phase.MEMSET,
                "name": "Memset (Device)",
                "bytes": rows["bytes"].where(rows["bytes"].between(0, MOST_BYTES), 0),
            }
        else:
            kinds = [copy_of(*kind) for kind in rows[["copyKind", "srcKind", "dstKind"]].itertuples(index=False)]
            block = dict(zip(("phase", "lane", "memory", "name"), map(list, zip(*kinds, strict=True)), strict=True))
            block["bytes"] = rows["bytes"].where(rows["bytes"].between(0, MOST_BYTES), 0)
            self.out.bounded["copies of unknown direction, taken as within the device"] += sum(
                phase == Phase.D2D and memory == Memory.UNKNOWN for phase, _, memory, _ in kinds
            )
        block |= dict(rows[["start_ns", "end_ns", "job", "partition", "worker", "gpu"]])
        self.out.add(len(rows), clock="DEVICE", stream=rows["streamId"].clip(lower=-1), **block)

    def _syncs(self, rows: pd.DataFrame) -> None:
        """Synchronisations; their deviceId can be wrong, so the GPU comes from the context or the process."""
        owner = self.operations.groupby(["pid", "contextId"])["gpu"].first().to_dict()
        pids = _pid(rows["globalPid"])
        single = self._gpu_of_process(pids)
        keys = zip(pids, rows["contextId"], single, strict=True)
        rows["gpu"] = np.array([owner.get((pid, context), gpu) for pid, context, gpu in keys], np.int64)
        kinds = rows["syncType"].where(rows["syncType"].between(0, len(SYNCS) - 1), 0)
        self._host(rows, np.array(SYNCS, object)[kinds], ~kinds.isin([0, STREAM_WAIT]))

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
        self.out.add(
            len(own), lane=lanes, **own[["start_ns", "end_ns", "job", "partition", "worker", "gpu", "phase", "name"]]
        )
