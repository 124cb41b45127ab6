"""FORMATS.md is held to the code: its examples are read, its tables name what the readers know, its C++ runs."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from cuzkbench import logs
from cuzkbench.analysis import partitions
from cuzkbench.events import FORMAT_VERSION
from cuzkbench.logs import chrome_kinds, cuzk, cuzk_parts, limits, nsight, nsight_names, read, recognise

PAGE = Path(logs.__file__).with_name("FORMATS.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"```(\w+)\n(.*?)```", PAGE, re.S))
SECTIONS = {text.partition("\n")[0].partition(":")[0]: text for text in PAGE.split("\n## ")[1:]}


def first_column(section, heading):
    """The code words in the first column of the table under this heading."""
    table = SECTIONS[section].partition(heading)[2].partition("\n\n")[0]
    return [word for line in table.splitlines()[2:] for word in re.findall(r"`([^`]+)`", line.split("|")[1])]


def example(tmp_path, name):
    path = tmp_path / name
    path.write_text(BLOCKS[name])
    return path


def test_every_format_has_its_section_and_its_row():
    assert set(SECTIONS) == set(logs.FORMATS)
    assert re.findall(r"^\| `(\w+)` \| `\w+\.py`", PAGE, re.M) == list(logs.FORMATS)
    for section in SECTIONS.values():
        assert "Cannot tell" in section


@pytest.mark.parametrize("name", ["native", "chrome", "cuzk"])
def test_each_example_is_recognised_and_read_without_loss(tmp_path, name):
    path = example(tmp_path, name)
    assert recognise(path) == name
    log = read(path)
    assert log.cut_at is None and {"H2D", "KERNEL"} <= set(log.frame["phase"])
    source = log.header["source"] or {"dropped": {}}
    assert source["dropped"] == {}


def test_the_engine_example_gives_the_rows_of_the_table(tmp_path):
    found = read(example(tmp_path, "cuzk")).frame
    named = set(zip(found["phase"].astype(str), found["name"].astype(str), strict=True))
    phases = {phase for phase, _ in named}
    table = SECTIONS["cuzk"].partition("| row | from |")[2].partition("\n\n")[0]
    for line in table.splitlines()[2:]:
        cell = line.split("|")[1]
        for phase in re.findall(r"\b[A-Z][A-Z0-9_]+\b", cell):
            assert phase in phases
        for name in re.findall(r"`([^`]+)`", cell):
            assert name in {name for _, name in named}


def test_engine_events_and_sizes_are_those_of_the_reader():
    for event in cuzk_parts.EVENTS:
        assert f"`{event}`" in SECTIONS["cuzk"]
    assert cuzk.POREP_BYTES == 3 * 32 * 130_278_869 and "3 × 32 × 130,278,869 bytes" in SECTIONS["cuzk"]
    assert f"{cuzk.ASSUMED_GB_S:.0f} GB/s" in SECTIONS["cuzk"]


def test_nsight_tables_are_those_of_the_reader():
    read_tables = {*nsight.OPERATIONS, nsight.SYNC, nsight.RUNTIME, nsight.NVTX, nsight.OSRT, *nsight.OVERHEADS}
    listed = {word for word in first_column("nsight", "| table | becomes |") if not word.startswith("TARGET_INFO")}
    assert listed == read_tables
    assert nsight_names.own_range("p3.w1.PREP:prep") is not None and "`job-7/p3.w1.PREP:prep`" in SECTIONS["nsight"]


def test_chrome_categories_are_those_of_the_reader():
    for word in first_column("chrome", "| category | becomes |"):
        role = chrome_kinds.kind_of(word, "x", word == "cuda").role
        known = {"cuda_sync": "sync", "cuzkbench": "host"} | dict.fromkeys(chrome_kinds.CALLS, "call")
        device = chrome_kinds.KERNELS | chrome_kinds.COPIES | chrome_kinds.MEMSETS | {"cuda"}
        assert role == ("device" if word in device else known.get(word, "host"))
    assert set(first_column("chrome", "| category | becomes |")) >= chrome_kinds.CALLS


def test_limits_and_versions_are_the_codes():
    assert f"Version {FORMAT_VERSION}." in SECTIONS["native"]
    default = limits.Limits()
    assert f"({default.max_bytes >> 30} GiB, {default.max_rows:,})" in PAGE
    for name in ("CUZKBENCH_MAX_BYTES", "CUZKBENCH_MAX_ROWS"):
        assert name in PAGE


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler here")
def test_the_cpp_program_writes_a_log_that_is_read(tmp_path):
    (tmp_path / "writer.cpp").write_text(BLOCKS["cpp"])
    subprocess.run(["c++", "-std=c++17", "-Wall", "-Werror", "-o", "writer", "writer.cpp"], cwd=tmp_path, check=True)
    subprocess.run(["./writer"], cwd=tmp_path, check=True)
    log = read(tmp_path / "run.jsonl")
    assert log.complete and partitions(log)["partition"].tolist() == [0, 1, 2]
    assert len(BLOCKS["cpp"].splitlines()) <= 25


def works(compiler: str) -> bool:
    """A shim that finds no toolchain is on the path, too."""
    found = shutil.which(compiler)
    return found is not None and subprocess.run([found, "--version"], capture_output=True).returncode == 0


@pytest.mark.skipif(not works("rustc"), reason="no Rust compiler that works here")
def test_the_rust_row_is_one_that_is_read(tmp_path):
    opening = '{"header": {"format_version": 1, "run": "r", "device_kind": "foreign"}}'
    program = f"""use std::io::Write;
fn main() -> std::io::Result<()> {{
    let mut log = std::fs::File::create("run.jsonl")?;
    writeln!(log, "{{}}", r#"{opening}"#)?;
    let (p, w, start, end) = (2, 1, 10u64, 30u64);
    {BLOCKS["rust"]}
    writeln!(log, r#"{{{{"trailer": {{{{"ended": "done"}}}}}}}}"#)
}}"""
    (tmp_path / "writer.rs").write_text(program)
    subprocess.run(["rustc", "-o", "writer", "writer.rs"], cwd=tmp_path, check=True)
    subprocess.run(["./writer"], cwd=tmp_path, check=True)
    row = read(tmp_path / "run.jsonl").frame.iloc[0]
    assert (row["partition"], row["worker"], row["start_ns"], row["end_ns"], row["phase"]) == (2, 1, 10, 30, "KERNEL")
