"""Mutated files of every foreign format: a log or a LogFormatError, and no healthy GPU where there was no data.

Fifty mutations a format; `CUZKBENCH_FUZZ=2000 pytest tests/test_fuzz_logs.py` tries two thousand.
"""

import gzip
import json
import os
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cuzkbench.analysis import all_operations, explain, metrics
from cuzkbench.events import LogFormatError
from cuzkbench.logs import read
from cuzkbench.logs.foreign import NO_GPU
from tests.engine_logs import engine_log
from tests.trace_files import PID, SHARED, call, event, nsight, operation

EXAMPLES = int(os.environ.get("CUZKBENCH_FUZZ", "50"))
CUTS = 100
EVIL = [
    b"",
    b"\x00",
    b"\xff\xfe",
    b"-1",
    b"9" * 40,
    b"1e400",
    b"NaN",
    b"null",
    b'"',
    b"{",
    b"[",
    b"]}",
    b"\n",
    b"\\ud800",
    b"=" * 9,
]
DEVICE_PHASES = ["KERNEL", "H2D", "D2H", "D2D", "MEMSET"]


def engine(folder):
    return ("\n".join(engine_log(2, 2, 3, ("porep-1-1", "w-[1 2]"), seed=3).merged()) + "\n").encode()


def trace(folder):
    events = []
    for i in range(40):
        events.append(event("cuda_runtime", "cudaLaunchKernel", 10 * i, 2, -1, correlation=i))
        events.append(event("kernel", f"k{i % 3}", f"{10 * i + 3}.25", 4.5, i % 2, stream=7, correlation=i))
    events += [
        event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 5, 7, bytes=4096),
        {"ph": "C", "name": "c", "ts": 1, "args": {"v": 2}},
    ]
    events += [{"ph": "B", "pid": 1, "tid": 1, "name": "b", "ts": 3}, {"ph": "E", "pid": 1, "tid": 1, "ts": 30}]
    facts = {"deviceProperties": [{"id": 0, "name": "T4"}], "baseTimeNanoseconds": 1_700_000_000_000_000_000}
    return json.dumps({"schemaVersion": 1, **facts, "traceEvents": events, "traceName": "t"}, indent=1).encode()


def export(folder):
    kernels = [operation(10 * i, 10 * i + 6, i, 1 + i % 2, i % 2, shortName=f"k{i % 3}") for i in range(60)]
    tables = {
        "CUPTI_ACTIVITY_KIND_KERNEL": kernels,
        "CUPTI_ACTIVITY_KIND_MEMCPY": [operation(3, 9, 70, bytes=64, copyKind=1, srcKind=0, dstKind=2)],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [
            call(10 * i - 4, 10 * i - 1, "cudaLaunchKernel_v7000", i, 1 + i % 2) for i in range(60)
        ],
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": [operation(50, 60, 0, syncType=3)],
        "NVTX_EVENTS": [{"start": 1, "end": 90, "eventType": 59, "text": "p0.w0.PREP:prep", "globalTid": PID + 5}],
        "OSRT_API": [call(5, 8, "pthread_cond_wait")],
        "TARGET_INFO_GPU": [{"id": 0, "name": "T4", "cuDevice": 0}],
        "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": 1_700_000_000_000_000_000}],
    }
    return nsight(folder / "seed.sqlite", tables).read_bytes()


SEEDS = {"cuzk": engine, "chrome": trace, "packed": lambda folder: gzip.compress(trace(folder)), "nsight": export}


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    return {name: make(tmp_path_factory.mktemp(name)) for name, make in SEEDS.items()}


@st.composite
def mutations(draw):
    """Places as fractions of the file, and what happens there."""
    place = st.floats(0, 1, exclude_max=True)
    one = st.one_of(
        st.tuples(st.just("flip"), place, st.integers(1, 255)),
        st.tuples(st.just("insert"), place, st.sampled_from(EVIL)),
        st.tuples(st.just("delete"), place, st.integers(1, 200)),
        st.tuples(st.just("repeat"), place, st.integers(1, 2000)),
        st.tuples(st.just("move"), place, place),
        st.tuples(st.just("number"), place, st.sampled_from([b"0", b"-7", b"99999999999999999999", b"1e9", b"0.0001"])),
        st.tuples(st.just("cut"), place, st.none()),
    )
    return draw(st.lists(one, min_size=1, max_size=6))


def mutate(content, changes):
    for what, place, value in changes:
        at = int(place * len(content))
        if what == "flip" and content:
            content = content[:at] + bytes([content[at] ^ value]) + content[at + 1 :]
        elif what == "insert":
            content = content[:at] + value + content[at:]
        elif what == "delete":
            content = content[:at] + content[at + value :]
        elif what == "repeat":
            content = content[:at] + content[at : at + value] + content[at:]
        elif what == "move":
            to = int(value * len(content))
            content = content[:at] + content[to : to + 100] + content[at + 100 :]
        elif what == "number":
            digits = at
            while digits < len(content) and content[digits : digits + 1].isdigit():
                digits += 1
            content = content[:at] + value + content[digits:]
        elif what == "cut":
            content = content[:at]
    return content


def sound(path, format=None, explained=False):
    """Read and judge a file, also by the whole of `explain` (a fifth of a second); None where it is refused."""
    try:
        log = read(path, format=format)
    except LogFormatError as error:
        assert str(error)
        return None
    device = log.frame[log.frame["phase"].isin(DEVICE_PHASES)]
    assert (NO_GPU in log.labels) == device.empty
    for judged in metrics(log).to_dict("records"):
        kernels = device[(device["gpu"] == judged["gpu"]) & (device["phase"] == "KERNEL")]
        assert judged["kernel_busy_ns"] <= (kernels["end_ns"] - kernels["start_ns"]).sum()
        assert judged["kernel_utilisation"] == 0 or not kernels.empty
    assert (all_operations(log)["idle_ns"] >= 0).all()
    if not explained:
        return log
    answer = explain(log)
    json.dumps(answer, allow_nan=False)
    for gpu in answer["gpus"]:
        assert sum(gpu["causes"].values()) == gpu["idle_ns"]
    healthy = [
        theory for theory in answer["theories"] if (theory["name"], theory["verdict"]) == ("compute-bound", "supported")
    ]
    assert not healthy or not device.empty
    return log


@pytest.mark.parametrize("name", SEEDS)
def test_the_seeds_are_read_without_a_word(seeds, name, tmp_path):
    (tmp_path / "seed").write_bytes(seeds[name])
    log = sound(tmp_path / "seed", explained=True)
    assert log.cut_at is None and not log.header["source"]["dropped"].get("records that cannot be read")


@pytest.mark.parametrize("name", SEEDS)
def test_mutated_files_are_read_or_refused(seeds, name, tmp_path_factory):
    path = tmp_path_factory.mktemp("mutated") / "file"
    format = "chrome" if name == "packed" else name

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(mutations())
    def run(changes):
        path.write_bytes(mutate(seeds[name], changes) or b"\x00")
        sound(path, format, explained=len(changes) == 1)

    run()


@pytest.mark.parametrize("name", ["cuzk", "chrome", "packed"])
def test_files_cut_at_a_hundred_places_say_so(seeds, name, tmp_path):
    content, draw = seeds[name], random.Random(name)
    for _ in range(CUTS):
        length = draw.randrange(1, len(content) - 1)
        if name == "cuzk" and content[length - 1 : length] == b"\n" and b"GPU_END" not in content[length:]:
            continue  # whole lines, all work done: nothing is missing that could be missed
        (tmp_path / "cut").write_bytes(content[:length])
        log = sound(tmp_path / "cut")
        assert log is None or log.cut_at


REAL = [SHARED / "cases" / "cuzk_two_workers.log", *sorted((SHARED / "traces").glob("*.json*"))]
REAL = [path for path in REAL if path.exists() and path.name != "manifest.json"]


@pytest.mark.skipif(not REAL, reason=f"no shared traces at {SHARED}")
@pytest.mark.parametrize("path", REAL, ids=[path.name for path in REAL])
def test_real_files_cut_at_random_places_say_so(path, tmp_path):
    content, draw = path.read_bytes(), random.Random(path.name)
    for _ in range(20):
        cut = Path(tmp_path / f"cut{path.suffix}")
        cut.write_bytes(content[: draw.randrange(1, len(content) - 4)])
        try:
            assert read(cut).cut_at
        except LogFormatError as error:
            assert "nothing" in str(error)
