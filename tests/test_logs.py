"""Native logs: what is written is read, what was cut says so, what is broken is refused with its place."""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
import os
import pickle
import sys
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuzkbench import logs
from cuzkbench.events import COLUMNS, HEADER, Event, LogFormatError, Memory, Phase
from cuzkbench.logs.log import Log
from cuzkbench.logs.validate import LANES, MOST_BYTES, complete_header, possible_trailer, validate
from tests import handmade
from tests.handmade import row


def small() -> Log:
    return handmade.log(
        row("SYNTHESIS", 0, 10),
        row("H2D", 10, 20, bytes=10, stream=1, clock="DEVICE", memory="PAGEABLE", warmup=True),
        row("KERNEL", 20, 30, name='ntt "ä"\n{<b>}', stream=2, clock="DEVICE"),
        row("COUNTER", 30, 30, name="power", value=0.1 + 0.2),
        row("FINISH", 30, 35, job="j2"),
        gpus=[{"gpu": 0, "device": "<script>"}],
        labels=["emulated <link>"],
    )


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_saved_log_reads_back_equal(tmp_path: Path, suffix: str):
    log = small()
    log.save(tmp_path / f"log{suffix}")
    back = logs.read(tmp_path / f"log{suffix}")
    pd.testing.assert_frame_equal(back.frame, log.frame)
    assert (back.header, back.trailer, back.cut_at) == (log.header, log.trailer, None)
    assert back.complete and back.format == "native" and back.gpus == (0,)
    assert [path.name for path in tmp_path.iterdir()] == [f"log{suffix}"]


def test_parquet_to_json_lines_to_parquet_is_the_same_frame(tmp_path: Path):
    small().save(tmp_path / "a.parquet")
    logs.read(tmp_path / "a.parquet").save(tmp_path / "b.jsonl")
    logs.read(tmp_path / "b.jsonl").save(tmp_path / "c.parquet")
    pd.testing.assert_frame_equal(logs.read(tmp_path / "c.parquet").frame, small().frame)


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
drawn_rows = st.lists(
    st.builds(
        lambda phase, start, length, **columns: row(phase, start, start + length, **columns),
        st.sampled_from([p.value for p in Phase if p is not Phase.COUNTER]),
        st.integers(-(2**60), 2**60),
        st.integers(0, 2**40),
        partition=st.integers(-1, 2**31 - 1),
        worker=st.integers(-1, 2**15 - 1),
        name=text,
        job=text,
        bytes=st.integers(0, MOST_BYTES),
        memory=st.sampled_from([m.value for m in Memory if m is not Memory.NONE]),
        stream=st.integers(-1, 2**62),
        warmup=st.booleans(),
        value=st.floats(allow_nan=True, allow_infinity=False),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=40, deadline=None)
@given(drawn_rows)
def test_any_rows_survive_both_formats(tmp_path_factory, rows):
    log, folder = handmade.log(*rows), tmp_path_factory.mktemp("round")
    for suffix in (".jsonl", ".parquet"):
        log.save(folder / f"log{suffix}")
        pd.testing.assert_frame_equal(logs.read(folder / f"log{suffix}").frame, log.frame, check_exact=True)


def test_json_lines_are_what_the_record_says(tmp_path: Path):
    small().save(tmp_path / "log.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert list(lines[0]) == ["header"] and list(lines[-1]) == ["trailer"]
    assert lines[1] == {
        "job": "j",
        "partition": 0,
        "gpu": -1,
        "worker": -1,
        "phase": "SYNTHESIS",
        "lane": "CPU",
        "name": "synthesis",
        "start_ns": 0,
        "end_ns": 10,
    }
    assert lines[2]["warmup"] is True and lines[2]["bytes"] == 10 and "value" not in lines[2]
    assert lines[4]["value"] == 0.1 + 0.2


def test_a_log_cut_at_every_byte_loads_and_says_so_or_holds_nothing(tmp_path: Path):
    small().save(tmp_path / "log.jsonl")
    data = (tmp_path / "log.jsonl").read_bytes()
    ends = [index + 1 for index, byte in enumerate(data) if byte == 10]  # header, five rows, trailer
    cut = tmp_path / "cut.jsonl"
    for at in range(len(data)):
        cut.write_bytes(data[:at])
        held = sum(at >= end - 1 for end in ends[1:6])  # a row is whole without its newline
        if held == 0:
            with pytest.raises(LogFormatError):
                logs.read(cut, format="native")
            continue
        log = logs.read(cut)
        assert len(log.frame) == held
        assert not log.complete and log.cut_at and f"byte {at}" in log.cut_at
        pd.testing.assert_frame_equal(
            log.frame[["start_ns", "end_ns", "bytes"]], small().frame[["start_ns", "end_ns", "bytes"]].head(held)
        )
    assert logs.read(tmp_path / "log.jsonl").complete


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_cut_log_that_is_saved_still_says_that_it_was_cut(tmp_path: Path, suffix: str):
    small().save(tmp_path / "log.jsonl")
    (tmp_path / "cut.jsonl").write_bytes((tmp_path / "log.jsonl").read_bytes()[:-30])
    logs.read(tmp_path / "cut.jsonl").save(tmp_path / f"again{suffix}")
    again = logs.read(tmp_path / f"again{suffix}")
    assert again.cut_at and not again.complete and len(again.frame) == 5


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (b"x", "Invalid value"),
        (b"[]", "array"),
        (b'{"partition": "three"}', "string"),
        (b'{"start_ns": 1.5}', "1.5"),
        (b'{"colour": 1}', "unexpected field"),
        (b'{"name": "\xff"}', "UTF8"),
        (b"{}", "missing"),
    ],
)
def test_a_bad_line_in_the_middle_is_named_with_what_was_read(tmp_path: Path, broken: bytes, words: str):
    small().save(tmp_path / "log.jsonl")
    lines = (tmp_path / "log.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "bad.jsonl").write_bytes(b"".join([*lines[:3], broken + b"\n", *lines[3:]]))
    with pytest.raises(LogFormatError, match=words) as error:
        logs.read(tmp_path / "bad.jsonl")
    assert error.value.where == "line 4" and error.value.read.startswith("2 rows")


@pytest.mark.parametrize("kept", [7, 6])
def test_two_runs_in_one_file_are_told_so(tmp_path: Path, kept: int):
    """A second run that was appended, to a whole log or to a killed one, was called an unexpected field."""
    small().save(tmp_path / "log.jsonl")
    lines = (tmp_path / "log.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "log.jsonl").write_bytes(b"".join(lines[:kept] + lines))
    with pytest.raises(LogFormatError, match="a second header: several runs were written into this") as error:
        logs.read(tmp_path / "log.jsonl")
    assert error.value.where == "line 7" and error.value.read.startswith("5 rows")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format_version": 2}, "update cuzkbench"),
        ({"format_version": None}, "format_version"),
        ({"device_kind": "toaster"}, "toaster.*cuda"),
        ({"gpus": [{"device": "x"}]}, "gpus"),
        ({"labels": "one"}, "labels"),
        ({"run": 3}, "run '3'"),
        ({"format_version": True}, "format_version"),
        ({"gpus": [{"gpu": True}]}, "gpus"),
        ({"gpus": [{"gpu": 0}, {"gpu": 0}]}, "gpus"),
        ({"kernels": {"a": 1}}, "kernels"),
        ({"source": {"format": [1]}}, "source"),
        ({"host": {"memory_bytes": "much"}}, "memory_bytes"),
        ({"line_rate_gb_s": {"H2D": "fast"}}, "line_rate_gb_s H2D"),
        ({"line_rate_gb_s": {"H2D": {"idle": 1e-300}}}, "line_rate_gb_s H2D"),
        ({"line_rate_gb_s": {"H2D": {"idle": math.inf}}}, "line_rate_gb_s H2D"),
        ({"plan": {"workers": "two"}}, "workers"),
        ({"plan": {"workers": 10**400}}, "workers"),
        ({"plan": {"synthesis_workers": {"a": 1}}}, "synthesis_workers"),
        ({"plan": {"preset": ["x"]}}, "preset"),
    ],
)
def test_a_header_that_cannot_be_is_refused(change: dict, words: str):
    with pytest.raises(LogFormatError, match=words):
        handmade.header(**change)


@pytest.mark.parametrize(
    "trailer",
    [[1], {"ended": ["x"]}, {"proofs": 5}, {"proofs": {"made": 1}}, {"proofs": {"made": 1, "verified": "x"}}],
)
def test_a_trailer_that_cannot_be_is_refused(tmp_path: Path, trailer: object):
    with pytest.raises(LogFormatError, match="trailer"):
        possible_trailer(trailer, "x")
    small().save(tmp_path / "log.jsonl")
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    (tmp_path / "log.jsonl").write_text("\n".join([*lines[:-1], json.dumps({"trailer": trailer})]) + "\n")
    with pytest.raises(LogFormatError, match="trailer"):
        logs.read(tmp_path / "log.jsonl")


def test_a_bare_header_is_completed():
    header = complete_header({"format_version": 1, "run": "r"}, "x")
    assert set(header) == set(HEADER)
    assert (header["device_kind"], header["kernels"], header["labels"], header["plan"]) == (
        "foreign",
        "unknown",
        [],
        None,
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"end_ns": 9}, "end_ns is before start_ns"),
        ({"phase": "DANCE"}, "DANCE.*KERNEL"),
        ({"lane": "CPU"}, "lane"),
        ({"gpu": 3}, "header"),
        ({"gpu": -1}, "without its gpu"),
        ({"memory": "NONE"}, "memory"),
        ({"bytes": -1}, "bytes"),
        ({"partition": -2}, "partition"),
        ({"worker": 40_000}, "worker"),
        ({"start_ns": 10.5}, "start_ns"),
        ({"job": None}, "job is missing"),
        ({"end_ns": 2**62}, "a time beyond"),
        ({"start_ns": -(2**63)}, "a time beyond"),  # its absolute value is itself
        ({"bytes": 2**62}, "bytes"),
        ({"value": math.inf}, "infinite"),
    ],
)
def test_a_row_that_cannot_be_is_refused_with_its_number(changes: dict, words: str):
    header = handmade.header(gpus=[{"gpu": 0}])
    rows = pd.DataFrame([row("H2D", 10, 20), row("H2D", 10, 20) | changes])
    with pytest.raises(LogFormatError, match=words) as error:
        validate(rows, header)
    assert "row 1" in str(error.value) or "column" in str(error.value)


def test_validation_fills_defaults_fixes_dtypes_and_leaves_its_input_alone():
    rows = pd.DataFrame([{name: row("KERNEL", 1, 2)[name] for name in Event._fields[:10]}])
    before = rows.copy()
    frame = validate(rows, handmade.header())
    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == COLUMNS
    assert frame.iloc[0]["stream"] == -1 and frame.iloc[0]["memory"] == "NONE" and math.isnan(frame.iloc[0]["value"])
    assert list(frame["phase"].cat.categories) == [phase.value for phase in Phase]
    pd.testing.assert_frame_equal(rows, before)


def test_every_phase_but_counter_and_other_has_its_lane():
    assert set(Phase) - set(LANES) == {Phase.COUNTER, Phase.OTHER}


def test_a_damaged_parquet_file_and_another_programs_are_refused(tmp_path: Path):
    small().save(tmp_path / "log.parquet")
    data = (tmp_path / "log.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(data[: len(data) // 2])
    with pytest.raises(LogFormatError, match="cut or damaged"):
        logs.read(tmp_path / "cut.parquet")
    pq.write_table(pq.read_table(tmp_path / "log.parquet").replace_schema_metadata({}), tmp_path / "other.parquet")
    with pytest.raises(LogFormatError, match="another program"):
        logs.read(tmp_path / "other.parquet")
    small().save(tmp_path / "log.jsonl")
    for name in ("log.parquet", "log.jsonl"):
        with pytest.raises(LogFormatError, match=r"limit of 2.*CUZKBENCH_MAX_ROWS"):
            logs.read(tmp_path / name, max_rows=2)


def test_a_damaged_page_of_a_parquet_file_is_refused_or_read_as_it_was(tmp_path: Path):
    """A flipped byte in a page could be unpacked into other numbers: nothing in the file told."""
    small().save(tmp_path / "log.parquet")
    data, refused = bytearray((tmp_path / "log.parquet").read_bytes()), 0
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    for place in range(4, footer):
        changed = data.copy()
        changed[place] ^= 0x10
        (tmp_path / "bad.parquet").write_bytes(changed)
        try:
            assert logs.read(tmp_path / "bad.parquet").frame.equals(small().frame), place
        except LogFormatError:
            refused += 1
    assert refused > 0.5 * footer


def test_a_log_says_in_a_line_what_it_is(tmp_path: Path):
    """`print(cuzkbench.run(plan))` printed the whole header, plan and trailer."""
    small().save(tmp_path / "log.jsonl")
    text = repr(logs.read(tmp_path / "log.jsonl"))
    assert text.count("\n") == 0 and f"{len(small().frame):,} rows>" in text and len(text) < 120
    data = (tmp_path / "log.jsonl").read_bytes()
    (tmp_path / "cut.jsonl").write_bytes(data[: data.rindex(b"\n", 0, -1) + 1])
    assert "rows, cut: line" in repr(logs.read(tmp_path / "cut.jsonl"))


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are bytes on Linux")
@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_name_that_is_no_utf_8_is_read_and_written(tmp_path: Path, suffix: str):
    """A Parquet log in such a file, or in such a folder, was "surrogates not allowed" and wrong usage."""
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xe9")) / f"log{suffix}"
    path.parent.mkdir()
    small().save(path)
    assert logs.read(path).frame.equals(small().frame)


def test_half_a_surrogate_pair_in_a_header_is_a_question_mark(tmp_path: Path):
    """An engine log in a file so named was imported, and the log of ours that came of it could not be read."""
    log = small()
    header = log.header | {"run": "a\udce9", "labels": ["\ud800"]}
    (tmp_path / "log.jsonl").write_text(json.dumps({"header": header}) + "\n" + '{"trailer": {}}\n')
    back = logs.read(tmp_path / "log.jsonl")
    assert (back.header["run"], back.labels) == ("a?", ("?",))


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize(
    ("trailer", "says"),
    [
        ({"ended": "done", "error": None}, None),
        ({"ended": "interrupted", "error": None}, "(interrupted)"),
        ({"ended": "failed", "error": "OSError: a\nb"}, "(failed: OSError: a b)"),
    ],
)
def test_a_run_that_ended_early_says_so_in_every_answer(tmp_path: Path, suffix: str, trailer: dict, says: str | None):
    """`explain` and `compare` said nothing of it: the log of an interrupted run has its trailer and reads as whole."""
    log = dataclasses.replace(small(), trailer=trailer)
    for name in ("once", "again"):
        log.save(tmp_path / f"{name}{suffix}")
        log = logs.read(tmp_path / f"{name}{suffix}")
    expected = [] if says is None else [f"The run ended early {says}: this log holds what was finished."]
    assert list(log.warnings) == expected


class _Planted:
    """Says so when it is unpickled."""

    def __reduce__(self) -> tuple:
        return Path.touch, (PLANTED,)


PLANTED = Path("planted-by-a-pickle")


def test_odd_parquet_columns_are_refused_and_metadata_is_never_unpickled(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small().save(tmp_path / "log.parquet")
    table = pq.read_table(tmp_path / "log.parquet")
    planted = {**table.schema.metadata, b"pandas": pickle.dumps(_Planted())}
    pq.write_table(table.replace_schema_metadata(planted), tmp_path / "planted.parquet")
    pd.testing.assert_frame_equal(logs.read(tmp_path / "planted.parquet").frame, small().frame)
    assert not PLANTED.exists()
    place = table.schema.get_field_index("name")
    for odd in (
        table.append_column("phase", table["phase"]),
        table.set_column(place, "name", pa.array([{"a": 1}] * len(table))),
        table.set_column(place, "name", pa.array([b"\xff"] * len(table))),
    ):
        pq.write_table(odd, tmp_path / "odd.parquet")
        with pytest.raises(LogFormatError):
            logs.read(tmp_path / "odd.parquet")


def test_packed_json_lines_are_read_whole_cut_and_damaged(tmp_path: Path):
    small().save(tmp_path / "log.jsonl")
    packed = gzip.compress((tmp_path / "log.jsonl").read_bytes())
    for data, words in ((packed, None), (packed[:-4], "end marker"), (packed[:-8] + bytes(8), "damaged")):
        (tmp_path / "log.gz").write_bytes(data)
        log = logs.read(tmp_path / "log.gz")
        pd.testing.assert_frame_equal(log.frame, small().frame)
        assert log.cut_at is None if words is None else words in log.cut_at
    with pytest.raises(LogFormatError, match="CUZKBENCH_MAX_BYTES"):
        logs.read(tmp_path / "log.gz", max_bytes=100)


def test_several_files_and_options_are_only_for_a_format_that_takes_them(tmp_path: Path):
    """A second native log was left out without a word; another format's option was a TypeError."""
    path = tmp_path / "log.jsonl"
    small().save(path)
    with pytest.raises(ValueError, match=r"2 files.*native"):
        logs.read(path, path)
    with pytest.raises(ValueError, match=r"partition_bytes.*native"):
        logs.read(path, partition_bytes=1)


def test_saving_is_whole_or_not_at_all(tmp_path: Path):
    with pytest.raises(ValueError, match=r"jsonl or \.parquet"):
        small().save(tmp_path / "log.csv")
    unwritable = Log(small().frame, small().header | {"plan": {"x": object()}})
    with pytest.raises(TypeError):
        unwritable.save(tmp_path / "log.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_an_unknown_format_and_a_missing_file_are_named(tmp_path: Path):
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(LogFormatError, match="the file is empty"):
        logs.read(tmp_path / "empty")
    with pytest.raises(ValueError, match="format 'x': one of native"):
        logs.read(tmp_path / "empty", format="x")
    with pytest.raises(FileNotFoundError):
        logs.read(tmp_path / "missing")
