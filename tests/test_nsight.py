"""Nsight Systems exports: small files of each schema, made by hand, against what was put into them."""

import json
import sqlite3

import pytest

from cuzkbench.analysis import all_operations
from cuzkbench.events import LogFormatError
from cuzkbench.logs import read
from cuzkbench.logs.foreign import NO_GPU
from cuzkbench.logs.nsight_names import LOCK_WAITS, bare, copy_of, own_range
from tests.trace_files import PID, VERSIONS, call, nsight, operation

KERNEL, MEMCPY, MEMSET, GRAPH, SYNC, RUNTIME = (
    f"CUPTI_ACTIVITY_KIND_{kind}"
    for kind in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE", "SYNCHRONIZATION", "RUNTIME")
)


def simple():
    return {
        RUNTIME: [call(1000, 1500, "cudaLaunchKernel_v7000", 1), call(2500, 4000, "cudaStreamSynchronize_v3020", 2)],
        KERNEL: [operation(2000, 3000, 1, shortName="msm", demangledName="void msm<int>()")],
        MEMCPY: [operation(1100, 1900, 3, bytes=4096, copyKind=1, srcKind=0, dstKind=2)],
        MEMSET: [operation(1950, 1990, 4, value=0, bytes=64, memKind=2)],
        "NVTX_EVENTS": [
            {"start": 900, "end": 5000, "eventType": 59, "text": "loop", "textId": None, "globalTid": PID + 5},
            {"start": 10, "end": None, "eventType": 34, "text": "mark", "textId": None, "globalTid": PID + 5},
        ],
    }


def rows(log, *phases):
    frame = log.frame[log.frame["phase"].isin(phases)]
    return sorted(frame[["name", "start_ns", "end_ns", "gpu"]].itertuples(index=False, name=None))


@pytest.mark.parametrize("version", VERSIONS)
def test_every_schema_gives_the_same_device_rows(tmp_path, version):
    content = simple()
    if version == "3.1.2":  # NVTX texts are ids only
        content["NVTX_EVENTS"] = [e | {"textId": e["text"], "text": None} for e in content["NVTX_EVENTS"]]
    log = read(nsight(tmp_path / "t.sqlite", content, version))
    assert rows(log, "KERNEL", "MEMSET") == [("Memset (Device)", 1950, 1990, 0), ("msm", 2000, 3000, 0)]
    assert rows(log, "HOST_SYNC") == [("cudaStreamSynchronize", 2500, 4000, 0)]
    assert ("loop", 900, 5000, 0) in rows(log, "OTHER") and ("launch", 1000, 2000, 0) in rows(log, "OTHER")
    copy = log.frame[log.frame["phase"] == "H2D"].iloc[0]
    assert (copy["bytes"], copy["memory"]) == (4096, "UNKNOWN" if version == "stripped" else "PAGEABLE")
    stated = log.header["source"]["facts"].get("EXPORT_SCHEMA_VERSION")
    assert stated == (None if version in ("oldest", "stripped") else version)
    assert log.header["source"]["dropped"] == {"NVTX marks, categories and domains, without an interval": 1}


@pytest.mark.parametrize(
    ("kind", "source", "target", "phase", "memory"),
    [
        (1, 0, 2, "H2D", "PAGEABLE"),
        (1, 1, 2, "H2D", "PINNED"),  # CUPTI's own numbers would call this pageable
        (1, 4, 2, "H2D", "UNKNOWN"),
        (2, 2, 0, "D2H", "PAGEABLE"),
        (2, 2, 1, "D2H", "PINNED"),
        (3, 1, 3, "H2D", "PINNED"),
        (4, 3, 0, "D2H", "PAGEABLE"),
        (8, 2, 2, "D2D", "NONE"),
        (9, 0, 1, "OTHER", "NONE"),
        (10, 2, 2, "D2D", "NONE"),
        (11, 7, 7, "H2D", "UNKNOWN"),
        (12, 7, 7, "D2H", "UNKNOWN"),
        (13, 7, 7, "D2D", "NONE"),
        (0, 0, 0, "D2D", "UNKNOWN"),
        (99, -5, 99, "D2D", "UNKNOWN"),
    ],
)
def test_copies_by_nsights_own_numbers(kind, source, target, phase, memory):
    found = copy_of(kind, source, target)
    assert (found[0], found[2]) == (phase, memory)


def test_processes_and_devices_are_apart(tmp_path):
    kernels = [
        operation(t, t + 10, i, pid, device, shortName="k")
        for i, (t, pid, device) in enumerate([(0, 1, 0), (5, 2, 0), (7, 2, 1)])
    ]
    log = read(nsight(tmp_path / "t.sqlite", {KERNEL: kernels}))
    assert [
        (gpu["gpu"], gpu["processes"], gpu["device_id"]) for gpu in sorted(log.header["gpus"], key=lambda g: g["gpu"])
    ] == [
        (0, [1], 0),
        (1, [2], 1),
        (2, [2], 0),
    ]
    assert all_operations(log)[["kernel_union_ns", "overlap_ns"]].values.tolist() == [[10, 0]] * 3


def test_one_physical_gpu_under_two_processes_is_one_and_said(tmp_path):
    kernels = [operation(0, 10, 1, 1, 0, shortName="k"), operation(5, 15, 2, 2, 0, shortName="k")]
    mapping = [{"gpuId": 3, "cudaId": 0, "pid": 1}, {"gpuId": 3, "cudaId": 0, "pid": 2}]
    named = [{"id": 0, "name": "Microsoft Basic Render Driver"}, {"id": 3, "name": "H100", "smCount": 132}]
    tables = {KERNEL: kernels, "TARGET_INFO_CUDA_DEVICE": mapping, "TARGET_INFO_GPU": named}
    log = read(nsight(tmp_path / "t.sqlite", tables))
    assert log.header["gpus"] == [{"gpu": 0, "device": "H100", "device_id": 0, "smCount": 132, "processes": [1, 2]}]
    assert all_operations(log)["kernel_union_ns"].tolist() == [15]
    assert "GPU 0 is shared by 2 processes, taken together" in log.warnings


def test_calls_are_joined_within_their_process(tmp_path):
    calls = [call(100, 110, "cudaLaunchKernel", 1, pid=1), call(300, 310, "cudaLaunchKernel", 1, pid=2)]
    kernels = [operation(150, 160, 1, 1, 0, shortName="k"), operation(350, 360, 1, 2, 1, shortName="k")]
    log = read(nsight(tmp_path / "t.sqlite", {RUNTIME: calls, KERNEL: kernels}))
    assert [row for row in rows(log, "OTHER") if row[0] == "launch"] == [
        ("launch", 100, 150, 0),
        ("launch", 300, 350, 1),
    ]


def test_lock_waits_count_on_threads_that_launch(tmp_path):
    waits = [
        call(10, 20, "pthread_cond_wait", thread=5),
        call(10, 20, "pthread_mutex_lock", thread=9),
        call(30, 40, "poll", thread=5),
    ]
    tables = simple() | {"OSRT_API": waits}
    log = read(nsight(tmp_path / "t.sqlite", tables))
    assert ("pthread_cond_wait", 10, 20, 0) in rows(log, "HOST_SYNC")
    assert {("pthread_mutex_lock", 10, 20, 0), ("poll", 30, 40, 0)} <= set(rows(log, "OTHER"))


def test_stream_waits_block_no_host_and_syncs_follow_their_context(tmp_path):
    kernels = [operation(0, 10, 1, 1, 0, shortName="k"), operation(0, 10, 1, 2, 1, shortName="k", contextId=2)]
    syncs = [
        operation(t, t + 1, 0, 2, 0, contextId=2, syncType=kind)
        for t, kind in ((20, 2), (30, 3), (40, 1), (50, 4), (60, 0))
    ]
    log = read(
        nsight(tmp_path / "t.sqlite", {KERNEL: kernels, SYNC: syncs})
    )  # deviceId 0 is wrong there, as seen in real files
    assert rows(log, "HOST_SYNC") == [
        ("Context sync", 50, 51, 1),
        ("Event sync", 40, 41, 1),
        ("Stream sync", 30, 31, 1),
    ]
    assert rows(log, "OTHER") == [("Stream wait event", 20, 21, 1), ("Unknown sync", 60, 61, 1)]


def test_own_ranges_give_partitions_and_workers_back(tmp_path):
    def own(start, end, text, thread):
        return {"start": start, "end": end, "eventType": 59, "text": text, "textId": None, "globalTid": PID + thread}

    ranges = [
        own(0, 50, "job-1/p3.w1.PREP:prep", 5),
        own(60, 65, "job-1/p3.w1.KERNEL:msm.h", 5),
        own(200, 240, "p4.w0.FINISH:finish", 6),
        own(0, 30, "p4.w0.SYNTHESIS:synthesis", 6),
        own(70, 75, "p1.w1.NOTHING:x", 5),
    ]
    calls = [call(61, 62, "cuLaunchKernel", 1, thread=5), call(100, 101, "cuLaunchKernel", 2, thread=6)]
    calls += [call(300, 301, "cuLaunchKernel", 3, thread=7)]
    kernels = [operation(t, t + 5, c, shortName="k") for t, c in ((80, 1), (120, 2), (310, 3))]
    log = read(nsight(tmp_path / "t.sqlite", {"NVTX_EVENTS": ranges, RUNTIME: calls, KERNEL: kernels}))
    named = log.frame[log.frame["partition"] >= 0]
    columns = ["phase", "lane", "name", "job", "partition", "worker", "gpu", "start_ns", "end_ns"]
    assert sorted(named[columns].itertuples(index=False, name=None)) == [
        ("FINISH", "CPU", "finish", "", 4, 0, 0, 200, 240),
        ("KERNEL", "COMPUTE", "k", "", 4, 0, 0, 120, 125),
        ("KERNEL", "COMPUTE", "k", "job-1", 3, 1, 0, 80, 85),
        ("PREP", "CPU", "prep", "job-1", 3, 1, 0, 0, 50),
        ("SYNTHESIS", "CPU", "synthesis", "", 4, -1, -1, 0, 30),
    ]
    assert log.frame[log.frame["start_ns"] == 310]["partition"].tolist() == [-1]
    assert ("p1.w1.NOTHING:x", 70, 75, 0) in rows(log, "OTHER")


@pytest.mark.parametrize(
    "name", ["pthread_mutex_lock", "pthread_cond_timedwait", "pthread_rwlock_wrlock", "sem_wait", "futex"]
)
def test_calls_that_wait_for_a_lock(name):
    assert LOCK_WAITS.fullmatch(name)
    assert not LOCK_WAITS.fullmatch(name.replace("lock", "unlock").replace("wait", "post").replace("futex", "poll"))


def test_names_with_and_without_versions():
    assert bare("cudaMemcpyAsync_v3020") == "cudaMemcpyAsync"
    assert bare("cuMemcpyHtoDAsync_v2") == "cuMemcpyHtoDAsync_v2"
    assert own_range("p1.w-1.PREP:a:b").name == "a:b" and own_range("aten::view") is None


def test_whole_graphs_unclosed_ranges_and_impossible_times_are_counted(tmp_path):
    tables = simple() | {GRAPH: [operation(5000, 9000, 9, graphId=1)]}
    tables[KERNEL] += [
        operation(None, 5, shortName="k"),
        operation(2**62, 2**62 + 5, shortName="k"),
        operation(60, 50, shortName="k"),
    ]
    open_range = {"start": 100, "end": None, "eventType": 60, "text": "open", "textId": None, "globalTid": PID + 5}
    tables["NVTX_EVENTS"] = [open_range]
    log = read(nsight(tmp_path / "t.sqlite", tables))
    assert ("CUDA graph", 5000, 9000, 0) in rows(log, "KERNEL") and ("k", 60, 60, 0) in rows(log, "KERNEL")
    assert ("open", 100, 9000, 0) in rows(log, "OTHER")
    assert log.header["source"]["dropped"] == {f"{KERNEL} rows without possible times": 2}
    assert log.header["source"]["bounded"] == {
        f"{KERNEL} rows that end before they start, taken as empty": 1,
        "CUDA graphs recorded as a whole, taken as busy throughout": 1,
        "NVTX ranges never closed, taken to last until the trace ends": 1,
    }


@pytest.mark.parametrize("tables", [{}, {RUNTIME: simple()[RUNTIME]}, {"NVTX_EVENTS": simple()["NVTX_EVENTS"]}])
def test_an_export_without_gpu_tables_is_valid_and_says_so(tmp_path, tables):
    log = read(nsight(tmp_path / "t.sqlite", tables))
    assert log.labels == (NO_GPU,) and log.gpus == () and len(all_operations(log)) == 0


def test_invalid_utf8_and_secrets_stay_outside(tmp_path):
    path = nsight(
        tmp_path / "t.sqlite", simple() | {"TARGET_INFO_SYSTEM_ENV": [{"name": "TOKEN", "value": "hf_012345"}]}
    )
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('x', CAST(x'ff80' AS TEXT))")
        connection.execute("UPDATE StringIds SET value = CAST(x'6bff' AS TEXT) WHERE value = 'msm'")
    log = read(path)
    assert "hf_012345" not in json.dumps(log.header) + log.frame.to_csv()
    assert rows(log, "KERNEL") == [("k\ufffd", 2000, 3000, 0)]


@pytest.mark.parametrize("damage", [b"\xd6\xff", b"\x1b[31m"])
def test_a_damaged_schema_is_refused_in_printable_words(tmp_path, damage):
    """SQLite quotes the damaged text: no UTF-8 (a UnicodeDecodeError), or escapes that a terminal obeys."""
    path = nsight(tmp_path / "t.sqlite", simple())
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        broken = b"CREATE TABLE StringIds (id " + damage + b" (("
        connection.execute("UPDATE sqlite_master SET sql = CAST(? AS TEXT) WHERE name = 'StringIds'", (broken,))
    with pytest.raises(LogFormatError, match="nothing is left") as refused:
        read(path)
    assert str(refused.value).isprintable()


def test_the_file_is_not_written_and_views_are_not_run(tmp_path):
    path = nsight(tmp_path / "t.sqlite", {RUNTIME: simple()[RUNTIME]})
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS start, i AS end FROM n"
    with sqlite3.connect(path) as connection:
        connection.execute(f'CREATE VIEW "{KERNEL}" AS {endless}')
    before = path.read_bytes()
    assert NO_GPU in read(path).labels
    assert path.read_bytes() == before and [file.name for file in tmp_path.iterdir()] == ["t.sqlite"]


def test_numbered_tables_are_taken_and_odd_types_survive(tmp_path):
    path = nsight(tmp_path / "t.sqlite", simple())
    with sqlite3.connect(path) as connection:
        connection.execute(f'ALTER TABLE "{KERNEL}" RENAME TO "{KERNEL}_V2"')
        connection.execute(f"UPDATE {MEMCPY} SET bytes = 'many', streamId = x'00', copyKind = 1.5")
    log = read(path)
    assert rows(log, "KERNEL") == [("msm", 2000, 3000, 0)]
    copy = log.frame[log.frame["start_ns"] == 1100].iloc[0]
    assert (copy["phase"], copy["bytes"], copy["stream"]) == ("D2D", 0, -1)


def test_other_databases_and_many_rows_are_refused(tmp_path):
    with sqlite3.connect(tmp_path / "other.sqlite") as connection:
        connection.execute("CREATE TABLE photographs (id INTEGER)")
    with pytest.raises(LogFormatError, match="no Nsight"):
        read(tmp_path / "other.sqlite")
    path = nsight(tmp_path / "t.sqlite", {KERNEL: [operation(i, i + 1, shortName="k") for i in range(500)]})
    with pytest.raises(LogFormatError, match="CUZKBENCH_MAX_ROWS"):
        read(path, max_rows=100)


def test_a_cut_export_says_where(tmp_path):
    content = nsight(
        tmp_path / "t.sqlite", {KERNEL: [operation(i, i + 1, shortName="k") for i in range(5000)]}
    ).read_bytes()
    (tmp_path / "cut.sqlite").write_bytes(content[:-1])
    try:
        assert "the file ends" in read(tmp_path / "cut.sqlite").cut_at
    except LogFormatError as error:  # this SQLite reads nothing of a file that lacks a page
        assert "the file ends" in error.where and "nothing is left" in error.what
