"""The cuzk daemon's log against a small model of the daemon that prints the lines and keeps the truth."""

import gzip
import itertools
import json
from pathlib import Path

import pytest

from cuzkbench.analysis import metrics, partitions
from cuzkbench.events import LogFormatError
from cuzkbench.logs import read
from cuzkbench.logs.cuzk import LOWER, NO_CALLS, UPPER
from cuzkbench.logs.foreign import NO_GPU
from tests.engine_logs import BYTES, coloured, engine_log, example
from tests.trace_files import SHARED

CASE = SHARED / "cases" / "cuzk_two_workers.log"


def log_of(tmp_path, *files, **options):
    paths = []
    for number, lines in enumerate(files):
        paths.append(tmp_path / f"engine-{number}.log")
        paths[-1].write_text("\n".join(lines) + "\n")
    return read(*paths, **options)


def agrees(log, truth, upload=True):
    """Every call within a millisecond of what the model did; placing sums several values, each without its fraction."""
    found = partitions(log).set_index(["job", "partition"])
    assert len(found) == len(truth)
    for call in truth:
        mine = found.loc[(call.job, call.partition)]
        assert (mine["worker"], mine["gpu"]) == (call.worker, call.gpu)
        for stated, measured in (
            (call.prove_start, mine["prove_start_ns"]),
            (call.wait, mine["lock_wait_ns"]),
            (call.held, mine["lock_hold_ns"]),
            (call.pickup, mine["pickup_ns"]),
            (call.ended, mine["completion_ns"]),
        ):
            assert abs(measured / 1e6 - stated) <= 1
        rows = log.frame[(log.frame["job"] == call.job) & (log.frame["partition"] == call.partition)]
        hold = rows[rows["phase"] == "LOCK_HOLD"].iloc[0]
        assert abs(hold["start_ns"] / 1e6 - call.acquired) <= 3
        if upload:
            copy = rows[rows["phase"] == "H2D"].iloc[0]
            assert abs((copy["end_ns"] - copy["start_ns"]) / 1e6 - call.upload) <= 1
            assert (copy["bytes"], copy["memory"]) == (BYTES, "PAGEABLE")
        inside = rows[rows["phase"].isin(["H2D", "KERNEL"])]
        assert inside["start_ns"].min() >= hold["start_ns"] and inside["end_ns"].max() <= hold["end_ns"]


@pytest.mark.parametrize(("gpus", "workers"), [(1, 1), (1, 2), (2, 1), (2, 2), (4, 2)])
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("streams", ["merged", "stdout first", "stderr first"])
def test_calls_of_all_workers_vs_the_model(tmp_path, gpus, workers, seed, streams):
    model = engine_log(gpus, workers, 8, ("porep-1000-7", "porep-1000-8"), seed=seed)
    stdout, stderr = model.apart()
    files = {"merged": [model.merged()], "stdout first": [stdout, stderr], "stderr first": [stderr, stdout]}[streams]
    log = log_of(tmp_path, *files)
    agrees(log, model.truth)
    assert log.cut_at is None and log.gpus == tuple(range(gpus))
    assert log.header["source"]["quantum_ns"] == 1_000_000
    assert log.header["epoch_utc"] == "2026-05-04T09:30:12.345678+00:00"


PREFIXES = {
    "escapes": coloured,
    "journald": lambda line: f"May 04 09:30:12 host cuzk-daemon[4242]: {line}",
    "compose": lambda line: f"cuzk-1  | {coloured(line)}",
    "docker -t": lambda line: f"2026-05-04T09:30:12.345678901Z {coloured(line)}",
    "docker json": lambda line: json.dumps(
        {"log": coloured(line) + "\n", "stream": "stderr", "time": "2026-05-04T09:30:12Z"}
    ),
    "carriage return": lambda line: line + "\r",
}


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("packed", [False, True])
def test_prefixes_and_escapes_change_nothing(tmp_path, prefix, packed):
    model = engine_log(2, 2, 6, seed=5)
    text = "\n".join(map(PREFIXES[prefix], model.merged())) + "\n"
    (tmp_path / "log").write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    agrees(read(tmp_path / "log"), model.truth)


def test_two_outputs_in_one_line_are_put_apart(tmp_path):
    model = engine_log(1, 2, 6, seed=6)
    pairs = itertools.zip_longest(*[iter(model.merged())] * 2, fillvalue="")
    log = log_of(tmp_path, ["".join(pair) for pair in pairs])
    agrees(log, model.truth)
    assert log.header["source"]["dropped"]["line ends between two outputs, put back"] > 50


def test_rotated_files_go_on_where_the_last_one_ended(tmp_path):
    model = engine_log(1, 2, 8, seed=7)
    lines = model.merged()
    log = log_of(tmp_path, lines[:61], lines[61:])
    agrees(log, model.truth)
    assert log.header["source"]["files"] == ["engine-0.log", "engine-1.log"]


def test_an_engine_without_its_start_line_is_dated_by_its_synthesis_lines(tmp_path):
    model = engine_log(1, 2, 6, seed=8)
    log = log_of(tmp_path, model.merged()[1:])
    agrees(log, model.truth)
    assert log.header["source"]["bounded"]["engines whose start is missing: dated by its synthesis lines"] == 1


def test_a_restarted_engine_follows_by_the_wall_clock(tmp_path):
    first, second = (engine_log(1, 2, 4, (job,), seed=seed) for job, seed in (("porep-1-1", 1), ("porep-1-2", 2)))
    later = [line.replace("2026-05-04T09:", "2026-05-04T11:") for line in second.merged()]
    log = log_of(tmp_path, first.merged() + later)
    agrees(log_of(tmp_path, first.merged()), first.truth)
    moved = log.frame[(log.frame["job"] == "porep-1-2") & (log.frame["phase"] == "LOCK_HOLD")]["start_ns"].min()
    assert abs(moved / 1e6 - 2 * 3600e3 - min(call.acquired for call in second.truth)) <= 3
    assert log.header["source"]["facts"] == {"engines": 2}


def test_a_retried_job_keeps_both_attempts(tmp_path):
    model = engine_log(1, 2, 4, ("porep-1-7", "porep-1-7"), seed=9)
    found = partitions(log_of(tmp_path, model.merged()))
    assert sorted(found["job"].astype(str)) == ["porep-1-7"] * 4 + ["porep-1-7#2"] * 4
    assert found["lock_hold_ns"].gt(0).all()


def test_monolithic_jobs_and_ids_with_spaces(tmp_path):
    jobs = ("3f2c", "wdpost-1000-0-[1 2 3 4]")
    model = engine_log(1, 1, jobs=jobs, monolithic=True, seed=10)
    log = log_of(tmp_path, model.merged())
    agrees(log, model.truth, upload=False)
    assert LOWER in log.labels and (log.frame["phase"] != "H2D").all()
    known = log_of(tmp_path, model.merged(), partition_bytes=1_000_000_000_000)
    assert (known.frame[known.frame["phase"] == "H2D"]["bytes"] == 1_000_000_000_000).all()


def test_pinned_uploads_are_bounded_and_flagged(tmp_path):
    model = engine_log(1, 2, 6, pinned=True, seed=11)
    log = log_of(tmp_path, model.merged())
    agrees(log, model.truth, upload=False)
    copies = log.frame[log.frame["phase"] == "H2D"]
    assert (copies["memory"] == "PINNED").all() and UPPER in log.labels
    assert ((copies["end_ns"] - copies["start_ns"]) == round(BYTES / 50)).all()
    assert log.header["source"]["bounded"]["uploads from pinned memory, taken at line rate"] == 6


def test_what_the_log_says_of_memory_and_size_goes_before_inference(tmp_path):
    model = engine_log(1, 1, 2, pinned=True, seed=12)
    lines = model.merged()
    queued = [line for line in lines if "pushing to GPU queue" in line]
    for line in queued:
        stamp, _, rest = line.partition("  INFO ")
        ended = rest.partition("partition=")[2]
        lines.append(
            f"{stamp}  INFO cuzk_core::pipeline: partition synthesis complete partition={ended} is_pinned=false"
        )
    lines.append(
        f"{stamp}  INFO cuzk_core::pipeline: attempting pinned memory synthesis num_constraints=1000 buf_gib=3.88"
    )
    copies = log_of(tmp_path, lines).frame.query("phase == 'H2D'")
    assert copies["memory"].tolist() == ["PAGEABLE"] * 2 and copies["bytes"].tolist() == [96_000] * 2


def test_older_engines_do_not_tell_uploads_from_kernels(tmp_path):
    model = engine_log(1, 2, 5, half=False, queue="CHAN_SEND", seed=13)
    extra = [
        "CUZK_TIMING: host_register=fallback err=1",
        "CUZK_TIMING: prestage_setup=ok domain=134217728 lot_of_memory=1",
    ]
    log = log_of(tmp_path, extra + model.merged() + ["CUZK_TIMING: epilogue_ms=3 pre_destructor_ms=1"])
    agrees(log, model.truth, upload=False)
    assert LOWER in log.labels
    assert set(log.frame[log.frame["phase"] == "KERNEL"]["name"]) == {"batch_add", "msm.tail"}
    assert (log.frame["phase"] == "QUEUE").sum() == 5


def test_stderr_alone_knows_locks_but_no_gpus(tmp_path):
    model = engine_log(2, 1, 6, seed=14)
    log = log_of(tmp_path, model.apart()[1])
    found = partitions(log).set_index(["job", "partition"])
    for call in model.truth:
        mine = found.loc[(call.job, call.partition)]
        assert abs(mine["lock_hold_ns"] / 1e6 - call.held) <= 1 and mine["worker"] == call.worker
    assert log.header["source"]["bounded"]["workers whose GPU no line names, taken as GPU 0"] == 2
    assert any("locks of GPU 0 overlap" in warning for warning in log.warnings)
    assert log.header["epoch_utc"] is None


def test_stdout_alone_knows_calls_but_no_kernels(tmp_path):
    model = engine_log(1, 2, 6, seed=15)
    log = log_of(tmp_path, model.apart()[0])
    found = partitions(log).set_index(["job", "partition"])
    for call in model.truth:
        mine = found.loc[(call.job, call.partition)]
        assert abs(mine["prove_start_ns"] / 1e6 - call.prove_start) <= 1 and mine["worker"] == call.worker
    assert {NO_CALLS, NO_GPU} <= set(log.labels)


def test_calls_that_look_alike_on_two_gpus_are_counted(tmp_path):
    model = engine_log(2, 1, 2, seed=16)
    lines = model.merged()
    copies = [line for line in lines if line.startswith("CUZK_TIMING: gpu_tid=0 ntt_msm_h_ms")]
    alike = [copies[0] if line in copies else line for line in lines]
    bounded = log_of(tmp_path, alike).header["source"]["bounded"]
    assert any("do not add up" in what or "could own" in what for what in bounded)


def test_failed_and_unfinished_partitions(tmp_path):
    model = engine_log(1, 2, 6, seed=17)
    first, last = model.truth[0], model.truth[-1]
    lost = [f"GPU_END,{call.job},worker={call.worker},partition={call.partition}" for call in (first, last)]
    lost += [f"finalizer partition worker_id={call.worker} partition=Some({call.partition})" for call in (first, last)]
    log = log_of(tmp_path, [line for line in model.merged() if not any(text in line for text in lost)])
    assert log.cut_at == "end of log: 1 partitions in flight"
    assert log.header["source"]["dropped"]["partitions begun and never finished"] == 1


def test_a_cut_log_says_so_at_every_byte_of_its_end(tmp_path):
    model = engine_log(1, 2, 3, seed=18)
    text = ("\n".join(model.merged()) + "\n").encode()
    after_all = text.rindex(b"FIN_TIMING")
    for length in range(len(text) - 400, len(text)):
        (tmp_path / "cut.log").write_bytes(text[:length])
        log = read(tmp_path / "cut.log")
        assert log.cut_at or (length > after_all and text[length - 1 : length] == b"\n")


def test_other_lines_are_counted_and_nothing_else_is_an_error(tmp_path):
    lines = engine_log(1, 1, 2, seed=19).merged()
    noise = ["hello", "TIMELINE,12", "TIMELINE,5,NEW_EVENT,j,partition=1", "CUZK_TIMING: ", "x" * 100_000, "\x00\xff"]
    noise.append("2026-13-45T99:99:99.000000Z  INFO cuzk_core::engine: GPU_TIMING prove_start worker_id=0")
    dropped = log_of(tmp_path, lines + noise).header["source"]["dropped"]
    assert dropped["lines that are no record"] == 2
    assert dropped["records that cannot be read"] == 2
    assert dropped["TIMELINE events of an unknown name"] == 1
    assert dropped["lines longer than any log line"] == 1


def test_an_engine_that_proved_nothing_has_no_gpu_activity(tmp_path):
    start = "2026-05-04T09:30:12.345678Z  INFO cuzk_core::engine: starting cuzk engine pipeline_enabled=true"
    assert NO_GPU in log_of(tmp_path, [start]).labels
    with pytest.raises(LogFormatError, match="nothing is left"):
        (tmp_path / "cut.log").write_text(start[:-5])
        read(tmp_path / "cut.log")


def test_the_example_in_data_is_the_models():
    assert (Path(__file__).parents[1] / "data" / "examples" / "engine.log").read_text() == example()


@pytest.mark.skipif(not CASE.exists(), reason=f"the shared engine log is not at {CASE}")
def test_the_shared_engine_log_vs_its_truth():
    log = read(CASE)
    truth = json.loads(CASE.with_suffix(".truth.json").read_text())
    found = partitions(log).set_index(["job", "partition"])
    assert len(found) == len(truth["partitions"])
    for call in truth["partitions"]:
        mine = found.loc[(call["job"], call["partition"])]
        assert (mine["worker"], mine["gpu"]) == (call["worker"], call["gpu"])
        for name, column in (
            ("pickup_ms", "pickup_ns"),
            ("prove_start_ms", "prove_start_ns"),
            ("mutex_wait_ms", "lock_wait_ns"),
            ("mutex_held_ms", "lock_hold_ns"),
            ("gpu_end_ms", "completion_ns"),
        ):
            assert abs(mine[column] / 1e6 - call[name]) <= 1
        rows = log.frame[(log.frame["job"] == call["job"]) & (log.frame["partition"] == call["partition"])]
        hold, copy = (rows[rows["phase"] == phase].iloc[0] for phase in ("LOCK_HOLD", "H2D"))
        assert abs(hold["start_ns"] / 1e9 - call["lock_acquired_s"]) <= 0.001
        assert abs(hold["end_ns"] / 1e9 - call["lock_released_s"]) <= 0.001
        assert copy["bytes"] / (copy["end_ns"] - copy["start_ns"]) == pytest.approx(call["h2d_gbs"], rel=0.002)
    assert metrics(log)["lock_utilisation"][0] == pytest.approx(truth["lock_utilisation_gpu0"], rel=0.001)
    assert log.cut_at is None and not set(log.header["source"]["bounded"]) - {
        "uploads whose memory is inferred from where they block"
    }
