"""Chrome and PyTorch traces against hand-made events, decimal arithmetic, and the reference figures of real traces."""

import gzip
import json
from decimal import ROUND_HALF_EVEN, Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuzkbench.analysis import all_operations
from cuzkbench.events import LogFormatError
from cuzkbench.logs import chrome_export, limits, read
from cuzkbench.logs.chrome import NO_EVENT
from cuzkbench.logs.chrome_kinds import kind_of, nanoseconds
from cuzkbench.logs.foreign import NO_GPU
from tests import handmade
from tests.handmade import row
from tests.trace_files import SHARED, chrome, event

KERNEL = event("kernel", "k", 10, 5, stream=7, device=0, correlation=1)
COPY = event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 2, 6, device=0, stream=7, correlation=2, bytes=4096)


def rows(log, phase):
    frame = log.frame[log.frame["phase"] == phase]
    return list(frame[["name", "start_ns", "end_ns", "gpu"]].itertuples(index=False, name=None))


@given(st.decimals(-9 * 10**15, 9 * 10**15, places=6), st.sampled_from(["plain", "exponent", "short"]))
def test_nanoseconds_vs_decimal_arithmetic(value, spelling):
    text = {"plain": f"{value:f}", "exponent": f"{value:E}", "short": f"{value:.3f}"}[spelling]
    exact = (Decimal(text) * 1000).to_integral_value(ROUND_HALF_EVEN)
    assert nanoseconds(text) == int(exact)


@pytest.mark.parametrize("value", [None, True, 1.5, "", "abc", "NaN", "Infinity", "1e400", "9" * 5000, [], {}])
def test_nanoseconds_of_what_is_no_time(value):
    assert nanoseconds(value) is None


def test_a_time_near_now_keeps_every_nanosecond(tmp_path):
    # A float64 near 1.7e15 µs has steps of 0.25 µs.
    text = '[{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1712345678901234.567,"dur":0.891}]'
    (tmp_path / "t.json").write_text(text)
    log = read(tmp_path / "t.json")
    zero = log.header["source"]["facts"]["time_zero_ns"]
    assert (zero, rows(log, "KERNEL")) == (1712345678901234567, [("k", 0, 891, 0)])
    assert log.header["epoch_utc"] == "2024-04-05T19:34:38.901234+00:00"


CONTAINERS = {
    "object": (lambda text: '{"schemaVersion": 1, "traceEvents": [' + text + '], "traceName": "t"}', False),
    "facts last": (
        lambda text: '{"traceEvents": [' + text + '], "deviceProperties": [{"id": 0, "name": "T4"}]}',
        False,
    ),
    "bare array": (lambda text: "[" + text + "]", False),
    "spaces": (lambda text: "\n [\n" + text.replace("}, {", "}\n,\r\n {") + "\n,]\n", False),
    "byte order mark": (lambda text: "\ufeff[" + text + "]", False),
    "unclosed array": (lambda text: "[" + text + ",\n", True),
    "unclosed object": (lambda text: '{"traceEvents": [' + text + "]", True),
}


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("chunk", [3, 64, 1 << 22])
def test_every_container_gives_the_same_rows(tmp_path, monkeypatch, container, packed, chunk):
    monkeypatch.setattr(limits, "CHUNK_BYTES", chunk)
    make, cut = CONTAINERS[container]
    text = make(json.dumps([KERNEL, COPY, event("kernel", "größer ☃", "20.5", "1.25", device=0)])[1:-1]).encode()
    path = tmp_path / "trace.bin"
    path.write_bytes(gzip.compress(text) if packed else text)
    log = read(path)
    assert rows(log, "KERNEL") == [("k", 10000, 15000, 0), ("größer ☃", 20500, 21750, 0)]
    assert rows(log, "H2D") == [("Memcpy HtoD (Pageable -> Device)", 2000, 8000, 0)]
    assert (log.cut_at is not None) == cut
    assert log.complete != cut


def test_strings_stand_for_numbers(tmp_path):
    old = {"ph": "X", "cat": "Kernel", "name": "k", "pid": "0", "tid": "stream 9", "ts": "1", "dur": "2"}
    log = read(chrome(tmp_path / "t.json", [old]))
    assert rows(log, "KERNEL") == [("k", 1000, 3000, 0)] and log.frame["stream"].tolist() == [9]


def test_overlapping_events_are_all_kept(tmp_path):
    log = read(chrome(tmp_path / "t.json", [event("kernel", n, t, 10) for n, t in (("a", 0), ("b", 5), ("c", 5))]))
    assert len(log.frame) == 3
    assert all_operations(log).to_dict("records")[0]["kernel_union_ns"] == 15000


def test_b_and_e_are_paired_by_thread_and_unclosed_ones_last_until_the_end(tmp_path):
    def mark(ph, name, ts, tid):
        return {"ph": ph, "cat": "cpu_op", "name": name, "pid": 1, "tid": tid, "ts": ts}

    events = [mark("E", "stray", 0, 1), mark("B", "outer", 1, 1), mark("B", "other", 2, 2), mark("B", "inner", 3, 1)]
    events += [mark("E", "", 4, 1), mark("E", "", 9, 1), KERNEL]
    log = read(chrome(tmp_path / "t.json", events))
    assert sorted(rows(log, "OTHER")) == [
        ("inner", 3000, 4000, -1),
        ("other", 2000, 15000, -1),
        ("outer", 1000, 9000, -1),
    ]
    source = log.header["source"]
    assert source["dropped"] == {"E events that close nothing": 1}
    assert source["bounded"] == {"B events never closed, taken to last until the trace ends": 1}


def test_what_has_no_interval_is_counted(tmp_path):
    events = [KERNEL, 17, {"name": "no ph"}, {"ph": "X", "name": "no times"}, {"ph": "i", "name": "i", "ts": 1}]
    events += [{"ph": "s", "id": 1, "ts": 1}, {"ph": "M", "name": "process_name", "args": {"name": "p"}}]
    events += [event("cpu_op", "never", 0, 0, -1), event("kernel", "back", 30, -4), event("kernel", "far", 10**17, 1)]
    source = read(chrome(tmp_path / "t.json", events)).header["source"]
    assert source["dropped"] == {
        "X events without ts and dur": 1,
        "elements that are no trace event": 2,
        "events at time 0 without duration": 1,
        "flow events: launches are joined by correlation": 1,
        "instants and other events without an interval": 1,
        "times no run can have": 1,
    }
    assert source["bounded"] == {"negative durations, taken as 0": 1}
    assert source["read"] == {"kernel events": 2, "metadata events": 1}


def test_counters_become_samples(tmp_path):
    sample = {"ph": "C", "name": "power", "ts": 3.5, "args": {"watts": 300, "value": "2.5", "bad": None}}
    frame = read(chrome(tmp_path / "t.json", [KERNEL, sample])).frame
    found = frame[frame["phase"] == "COUNTER"].sort_values("name")
    assert found[["name", "start_ns", "value"]].values.tolist() == [["power", 3500, 2.5], ["power.watts", 3500, 300.0]]


@pytest.mark.parametrize(
    ("name", "phase", "memory"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "H2D", "PAGEABLE"),
        ("Memcpy HtoD (Pinned -> Device)", "H2D", "PINNED"),
        ("Memcpy DtoH (Device -> Pinned)", "D2H", "PINNED"),
        ("Memcpy DtoH (Device -> Pageable)", "D2H", "PAGEABLE"),
        ("Memcpy HtoD (Host -> Device)", "H2D", "UNKNOWN"),
        ("Memcpy HtoD (Managed -> Device)", "H2D", "UNKNOWN"),
        ("CopyHostToDevice", "H2D", "UNKNOWN"),
        ("CopyDeviceToHost", "D2H", "UNKNOWN"),
        ("Memcpy DtoD (Device -> Device)", "D2D", "NONE"),
        ("Memcpy PtoP (Device -> Device)", "D2D", "NONE"),
        ("Memcpy", "D2D", "UNKNOWN"),
    ],
)
def test_copies_by_their_names(name, phase, memory):
    kind = kind_of("gpu_memcpy", name, False)
    assert (kind.phase, kind.memory) == (phase, memory)


@pytest.mark.parametrize(
    ("category", "name", "phase"),
    [
        ("cuda_runtime", "cudaStreamSynchronize", "HOST_SYNC"),
        ("cuda_driver", "cuCtxSynchronize", "HOST_SYNC"),
        ("cuda_runtime", "hipDeviceSynchronize", "HOST_SYNC"),
        ("cuda_runtime", "cudaMemcpy", "HOST_SYNC"),
        ("cuda_runtime", "cudaMemcpyAsync", "OTHER"),
        ("cpu_op", "cudaStreamSynchronize", "OTHER"),
        ("cuda_sync", "Stream Sync", "HOST_SYNC"),
        ("cuda_sync", "Stream Wait Event", "OTHER"),
        ("nvtx-kernel", "range", "OTHER"),
    ],
)
def test_only_what_blocks_the_host_is_host_sync(category, name, phase):
    assert kind_of(category, name, True).phase == phase


def test_launches_reach_from_the_call_to_the_first_operation(tmp_path):
    calls = [
        event("cuda_runtime", "cudaGraphLaunch", 1, 2, -1, correlation=7),
        event("cuda_runtime", "cudaFree", 2, 1, -1),
    ]
    operations = [event("kernel", n, t, 4, stream=3, correlation=7) for n, t in (("second", 20), ("first", 9))]
    early = [
        event("cuda_runtime", "cudaLaunchKernel", 50, 1, -1, correlation=8),
        event("kernel", "e", 45, 1, correlation=8),
    ]
    log = read(chrome(tmp_path / "t.json", calls + operations + early))
    assert ("launch", 1000, 9000, 0) in rows(log, "OTHER")
    assert (log.frame["name"] == "launch").sum() == 1
    assert log.header["source"]["bounded"] == {"operations that start before their launch: clocks disagree": 1}


def test_devices_are_never_merged(tmp_path):
    events = [event("kernel", "k", t, 10, device) for device, t in ((0, 0), (3, 5), ("Device 1", 7))]
    log = read(chrome(tmp_path / "t.json", events))
    assert log.gpus == (0, 1, 3)
    assert all_operations(log)["overlap_ns"].tolist() == [0, 0, 0]


def test_a_trace_without_gpu_rows_says_so(tmp_path):
    log = read(chrome(tmp_path / "t.json", [event("cpu_op", "aten::add", 5, 3, -1)]))
    assert log.gpus == () and NO_GPU in log.labels and NO_GPU in log.warnings
    assert read(chrome(tmp_path / "none.json", [])).labels == (NO_GPU,)


def test_only_named_facts_reach_the_header(tmp_path):
    secret = "hf_0123456789"
    facts = {"username": secret, "env": {"TOKEN": secret}, "traceName": f"/home/{secret}", "schemaVersion": 1}
    properties = [{"id": 0, "name": "T4", "numSms": 40, "owner": secret}]
    process = {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": secret}}
    log = read(
        chrome(
            tmp_path / "t.json", [KERNEL | {"args": {"command": secret}}, process], deviceProperties=properties, **facts
        )
    )
    assert secret not in json.dumps(log.header) and secret not in log.frame.to_csv()
    assert log.header["gpus"] == [{"gpu": 0, "device": "T4", "device_id": 0, "numSms": 40}]


def test_damage_between_events_costs_only_what_it_hit(tmp_path):
    texts = [json.dumps(event("kernel", f"k{i}", 10 * i + 1, 5)) for i in range(50)]
    texts[20] = texts[20].replace('"ph"', '"ph', 1)
    (tmp_path / "t.json").write_text('{"traceEvents": [' + ",\n".join(texts) + "]}")
    log = read(tmp_path / "t.json")
    assert len(log.frame) == 49 and log.cut_at is None
    assert log.header["source"]["dropped"] == {"damaged stretches between events": 1}


def test_deep_nesting_and_lone_surrogates_do_no_harm(tmp_path):
    deep = '{"ph": "X", "args": ' + "[" * 100_000 + "]" * 100_000 + "}"
    (tmp_path / "t.json").write_text("[" + deep + ", " + json.dumps(KERNEL | {"name": "\ud800k"}) + "]")
    log = read(tmp_path / "t.json")
    assert rows(log, "KERNEL") == [("?k", 10000, 15000, 0)]
    log.save(tmp_path / "t.parquet")


@pytest.mark.parametrize("text", ['{"a": 1}', '{"traceEvents": 5}', "{}", '[{"a": 1}, {"b": 2}]'])
def test_json_that_is_no_trace_is_refused(tmp_path, text):
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(LogFormatError, match="no trace"):
        read(tmp_path / "t.json")


def test_what_is_no_event_among_events_is_counted(tmp_path):
    log = read(chrome(tmp_path / "t.json", [KERNEL, {"a": 1}]))
    assert len(log.frame) == 1 and log.header["source"]["dropped"] == {NO_EVENT: 1}


def test_a_zip_bomb_is_refused_until_the_limit_is_raised(tmp_path):
    path = tmp_path / "bomb.json.gz"
    text = b"[" + json.dumps(KERNEL).encode() + b" " * (80 << 20) + b"]"
    path.write_bytes(gzip.compress(text, 9))
    with pytest.raises(LogFormatError, match=r"200-fold.*CUZKBENCH_MAX_BYTES"):
        read(path)
    assert len(read(path, max_bytes=5 << 30).frame) == 1


@pytest.mark.parametrize("before", [b"[", b'{"traceEvents": [', b'{"a": '])
def test_a_limit_reached_inside_a_value_refuses_the_file(tmp_path, before):
    """The refusal was taken for damage: what came before the bomb was returned as a cut log."""
    path = tmp_path / "bomb.json"
    path.write_bytes(before + json.dumps(KERNEL).encode() + b',\n{"ph": "X", "name": "' + b"x" * 5_000_000)
    with pytest.raises(LogFormatError, match="refused as a whole"):
        read(path, max_bytes=4_500_000)


def test_limits_by_option_and_environment(tmp_path, monkeypatch):
    path = chrome(tmp_path / "t.json", [KERNEL] * 70_000)
    with pytest.raises(LogFormatError, match="max_bytes"):
        read(path, max_bytes=1000)
    with pytest.raises(LogFormatError, match="max_rows"):
        read(path, max_rows=1000)
    monkeypatch.setenv("CUZKBENCH_MAX_ROWS", "1000")
    with pytest.raises(LogFormatError, match="CUZKBENCH_MAX_ROWS"):
        read(path)
    monkeypatch.setenv("CUZKBENCH_MAX_ROWS", "many")
    with pytest.raises(ValueError, match="many"):
        read(path)


def exported(tmp_path, log, name="out.json"):
    chrome_export.write(log, tmp_path / name)
    opened = gzip.open if name.endswith(".gz") else open
    with opened(tmp_path / name, "rt") as file:
        return json.load(file)["traceEvents"], read(tmp_path / name)


def two_workers():
    rows = []
    for partition, worker in ((0, 0), (1, 1)):
        at = 1_000_001 * partition
        life = [
            ("PREP", 0, 100),
            ("LOCK_WAIT", 100, 900),
            ("LOCK_HOLD", 900, 9001),
            ("H2D", 100, 3000),
            ("KERNEL", 3000, 9001),
        ]
        rows += [row(phase, at + start, at + end, partition, worker, job="j") for phase, start, end in life]
        rows += [row("SYNTHESIS", at - 2000, at, partition, job="j"), row("QUEUE", at, at + 1, partition, job="j")]
    rows.append(row("COUNTER", 5, 5, -1, -1, value=0.5, name="power"))
    return handmade.log(*rows)


@pytest.mark.parametrize("name", ["out.json", "out.json.gz"])
def test_an_exported_log_comes_back_to_the_nanosecond(tmp_path, name):
    log = two_workers()
    _, back = exported(tmp_path, log, name)

    def plain(frame):
        texts = dict.fromkeys(("job", "phase", "lane", "name", "memory", "clock"), str)
        kept = frame[frame["phase"] != "COUNTER"].drop(columns=["run", "value"]).astype(texts)
        return kept.sort_values(list(kept.columns), ignore_index=True)

    assert plain(log.frame).equals(plain(back.frame))


def test_a_changed_row_of_our_export_is_a_host_row(tmp_path):
    args = {"phase": "KERNEL", "lane": "CPU", "memory": "NONE", "clock": "HOST", "job": "j", "warmup": False}
    log = read(chrome(tmp_path / "t.json", [event("cuzkbench", "odd", 1, 2) | {"args": args}]))
    assert rows(log, "OTHER") == [("odd", 1000, 3000, -1)] and log.gpus == ()


def test_flows_join_each_upload_to_its_partitions_first_kernel(tmp_path):
    events, _ = exported(tmp_path, two_workers())
    slices = [e for e in events if e["ph"] == "X"]
    flows = {}
    for e in events:
        if e["ph"] in "sf":
            flows.setdefault(e["id"], {})[e["ph"]] = e
    assert len(flows) == 2
    for ends in flows.values():
        inside = [
            next(s for s in slices if (s["pid"], s["tid"], s["ts"]) == (e["pid"], e["tid"], e["ts"]))
            for e in ends.values()
        ]
        assert [s["args"]["phase"] for s in inside] == ["H2D", "KERNEL"]
        assert inside[0]["args"]["partition"] == inside[1]["args"]["partition"]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12), st.sampled_from(["KERNEL", "OTHER"])), min_size=1))
def test_slices_of_a_track_never_overlap_in_part(intervals):
    log = handmade.log(*(row(phase, start, start + length, -1, -1) for start, length, phase in intervals))
    frame = log.frame.sort_values(["start_ns", "end_ns"], ignore_index=True)
    process, thread, _ = chrome_export.tracks(frame)
    for key in set(zip(process, thread, strict=True)):
        there = (process == key[0]) & (thread == key[1])
        start, end = frame["start_ns"].to_numpy()[there], frame["end_ns"].to_numpy()[there]
        device = (frame["phase"].astype(str) == "KERNEL").to_numpy()[there].any()
        for i in range(len(start)):
            apart = (start[i + 1 :] >= end[i]) | (
                (end[i + 1 :] <= end[i]) & (not device or end[i + 1 :] == start[i + 1 :])
            )
            assert apart.all()


FIGURES = {
    "n_kernel": "kernels",
    "n_memcpy": "copies",
    "n_memset": "memsets",
    "span_ns": "span_ns",
    "kernel_union_ns": "kernel_union_ns",
    "memcpy_union_ns": "copy_union_ns",
    "overlap_ns": "overlap_ns",
    "device_busy_ns": "busy_ns",
    "device_idle_ns": "idle_ns",
    "n_idle_gaps": "idle_gaps",
    "pageable_memcpy_union_ns": "pageable_copy_union_ns",
}
MANIFEST = SHARED / "traces" / "manifest.json"
REAL = json.loads(MANIFEST.read_text()) if MANIFEST.exists() else []
needs_shared = pytest.mark.skipif(not REAL, reason=f"the shared real traces are not at {MANIFEST}")


@needs_shared
@pytest.mark.parametrize("entry", REAL, ids=[entry["file"] for entry in REAL])
def test_real_traces_vs_reference_figures_of_two_algorithms(entry):
    log = read(MANIFEST.parent / entry["file"])
    found = {int(row["gpu"]): row for row in all_operations(log).to_dict("records")}
    assert len(found) == len(entry["reference"])
    for device, figures in entry["reference"].items():
        mine = found[int(device.split()[-1])]
        assert {name: int(mine[FIGURES[name]]) for name in figures} == figures
    assert (NO_GPU in log.labels) == (not entry["reference"])


@needs_shared
def test_one_run_in_two_formats_has_one_kernel_table():
    names = ("nsys_power_iteration.sqlite", "chrome_power_iteration.json")
    tables = []
    for name in names:
        frame = read(MANIFEST.parent / name).frame
        kernels = frame[frame["phase"] == "KERNEL"][["gpu", "stream", "name", "start_ns", "end_ns"]].astype(
            {"name": str}
        )
        tables.append(kernels.sort_values(["start_ns", "end_ns", "name"], ignore_index=True))
    assert tables[0].equals(tables[1])
    assert np.all(tables[0]["end_ns"] > tables[0]["start_ns"])
