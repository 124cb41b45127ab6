"""The recorder against a hand-wound clock: what a hook writes is what happened, and to whom."""

import json
import sys
import time
from pathlib import Path

import pytest

from cuzkbench.events import Clock, Event, Lane, Memory, Phase
from cuzkbench.timing import Recorder, as_row, span_cost_ns

START = 1_000


class Ticks:
    """A clock that is 10 ns later at each reading."""

    def __init__(self) -> None:
        self.now = START - 10

    def __call__(self) -> int:
        self.now += 10
        return self.now


class Mark:
    """A device event with a known time."""

    def __init__(self, ns: int) -> None:
        self.ns = ns

    def synchronize(self) -> None:
        """Passed already."""

    def time_ns(self) -> int:
        """The known time."""
        return self.ns


class Stream:
    """Hands out marks in order."""

    number = 7

    def __init__(self, *times: int) -> None:
        self.times = list(times)

    def record(self) -> Mark:
        """The next one."""
        return Mark(self.times.pop(0))


def written(recorder: Recorder, path: Path) -> tuple[dict, list[dict], dict]:
    recorder.open(path, {"device_kind": "emulated"})
    recorder.close({"ended": "done"})
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return lines[0]["header"], lines[1:-1], lines[-1]["trailer"]


def test_rows_vs_hand_wound_clock(tmp_path: Path) -> None:
    recorder = Recorder("r1", clock=Ticks(), device_clock=Clock.DEVICE)  # the epoch is the first reading
    scope = recorder.scope("proof", 3)
    with scope.span(Phase.SYNTHESIS, "synthesis"):
        pass
    scope.add(Phase.QUEUE, Lane.CPU, "queue", START + 20, START + 25)
    stream = Stream(START + 100, START + 160)
    scope.on(1, 4).between(
        Phase.H2D, Lane.COPY_H2D, "a", (scope.mark(stream), scope.mark(stream)), stream.number, 64, Memory.PINNED
    )
    recorder.counter("queue", 2)
    header, rows, trailer = written(recorder, tmp_path / "log.jsonl")
    assert header["run"] == "r1" and header["device_kind"] == "emulated" and header["epoch_utc"]
    identity = {"job": "proof", "partition": 3, "gpu": -1, "worker": -1}
    assert rows[0] == identity | {
        "phase": "SYNTHESIS",
        "lane": "CPU",
        "name": "synthesis",
        "start_ns": 10,
        "end_ns": 20,
    }
    assert rows[1] == identity | {"phase": "QUEUE", "lane": "CPU", "name": "queue", "start_ns": 20, "end_ns": 25}
    assert rows[2] == identity | {
        "gpu": 1,
        "worker": 4,
        "phase": "H2D",
        "lane": "COPY_H2D",
        "name": "a",
        "start_ns": 100,
        "end_ns": 160,
        "bytes": 64,
        "memory": "PINNED",
        "stream": 7,
        "clock": "DEVICE",
    }
    assert rows[3]["phase"] == "COUNTER" and rows[3]["value"] == 2.0 and rows[3]["start_ns"] == rows[3]["end_ns"] == 30
    assert trailer["ended"] == "done" and trailer["hooks"]["events"] == 4


def test_log_line_holds_what_differs_from_event_defaults() -> None:
    fields = ("job", "partition", "gpu", "worker", "phase", "lane", "name", "start_ns", "end_ns")
    plain = Event("r", "j", 0, 0, 0, Phase.PREP, Lane.CPU, "prep", 0, 1)
    assert tuple(as_row(plain)) == fields
    assert tuple(as_row(plain._replace(warmup=True, value=0.0))) == (*fields, "value", "warmup")


def test_run_without_hooks_records_completions_only(tmp_path: Path) -> None:
    recorder = Recorder(timing=False, clock=Ticks())
    scope = recorder.scope("proof", 0, 0, 0)
    for phase in (Phase.PREP, Phase.FINISH):
        with scope.span(phase, phase.value.lower()):
            pass
    scope.add(Phase.LOCK_HOLD, Lane.LOCK, "lock", START, START)
    scope.add(Phase.VERIFY, Lane.CPU, "accepted", START, START)
    recorder.counter("queue", 1)
    stream = Stream(START)
    assert scope.mark(stream) is None and stream.times == [START]
    scope.between(Phase.KERNEL, Lane.COMPUTE, "ntt.a", (None, None), 0)
    _, rows, trailer = written(recorder, tmp_path / "log.jsonl")
    assert [row["phase"] for row in rows] == ["FINISH", "VERIFY"]
    assert trailer["hooks"]["span_ns"] == 0


def test_span_that_ends_by_exception_is_recorded(tmp_path: Path) -> None:
    recorder = Recorder(clock=Ticks())
    with pytest.raises(KeyError), recorder.scope("proof", 0, 0, 0).span(Phase.PREP, "prep"):
        raise KeyError("x")
    assert [row["name"] for row in written(recorder, tmp_path / "log.jsonl")[1]] == ["prep"]


def test_rows_are_on_disk_before_the_run_ends(tmp_path: Path) -> None:
    path, recorder = tmp_path / "log.jsonl", Recorder()
    recorder.open(path, {})
    with recorder.scope("proof", 0, 0, 0).span(Phase.PREP, "prep"):
        pass
    deadline = time.monotonic() + 20
    while path.read_text().count("\n") < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [json.loads(line).get("phase") for line in path.read_text().splitlines()] == [None, "PREP"]
    recorder.close({})


@pytest.mark.skipif(sys.platform == "win32", reason="no flock on Windows")
def test_a_second_run_into_the_same_file_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    """Two runs at one time with one `-o log.jsonl` both ended with status 0, and their lines were mixed in it."""
    path, first = tmp_path / "log.jsonl", Recorder("first")
    path.write_text("what an earlier run left")
    first.open(path, {})
    with pytest.raises(OSError, match="another run is writing it"):
        Recorder("second").open(path, {})
    first.close({})
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [next(iter(line)) for line in lines] == ["header", "trailer"]
    assert lines[0]["header"]["run"] == "first"
    again = Recorder("third")
    again.open(path, {})
    again.close({})
    assert json.loads(path.read_text().splitlines()[0])["header"]["run"] == "third"


def test_batches_reach_the_live_view_and_its_failure_ends_the_writer(tmp_path: Path) -> None:
    seen: list[Event] = []
    recorder = Recorder(on_event=seen.extend)
    recorder.scope("proof", 5, 0, 0).add(Phase.PREP, Lane.CPU, "prep", recorder.epoch_ns, recorder.epoch_ns + 5)
    written(recorder, tmp_path / "log.jsonl")
    assert [(event.partition, event.end_ns) for event in seen] == [(5, 5)]

    def broken(batch: object) -> None:
        raise ZeroDivisionError

    recorder = Recorder(on_event=broken)
    recorder.counter("queue", 1)
    recorder.open(tmp_path / "second.jsonl", {})
    with pytest.raises(ZeroDivisionError):
        recorder.close({})


def test_profiler_ranges_enclose_spans() -> None:
    calls: list[str] = []

    class Ranges:
        def RangePush(self, name: str) -> None:
            calls.append(name)

        def RangePop(self) -> None:
            calls.append("pop")

    scope = Recorder(ranges=Ranges()).scope("proof", 0)
    with scope.span(Phase.PREP, "prep"), scope.range("msm.h"):
        pass
    assert calls == ["prep", "msm.h", "pop", "pop"] and len(scope.recorder.rows) == 1
    with Recorder(ranges=Ranges(), timing=False).scope("proof", 0).range("msm.h"):
        pass
    assert len(calls) == 4


def test_span_cost_is_measured() -> None:
    cost = span_cost_ns()
    print(f"a span costs {cost:.0f} ns")
    assert cost > 0
