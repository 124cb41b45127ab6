"""The command line: exit status, one line for a caller's fault, one JSON document on stdout, every knob an option."""

import dataclasses
import io
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from rich.console import Console

from cuzkbench import analysis, read
from cuzkbench.cli import app, main
from cuzkbench.events import DeviceError, LogFormatError
from cuzkbench.plan import LOG2_MAX, RunPlan
from cuzkbench.prover.scheduler import RunFailed, RunInterrupted
from cuzkbench.sweep import plans
from cuzkbench.tables import explanation

COMMANDS = typer.main.get_command(app).commands
INTERFACE = (
    "demo", "run", "explain", "compare", "whatif", "report", "gallery", "import", "export", "sweep", "doctor", "bench",
)  # fmt: skip


@pytest.fixture(scope="module")
def model_log(tmp_path_factory):
    """A simulated log, made through the command line."""
    path = tmp_path_factory.mktemp("model") / "seed-case.parquet"
    assert status("run", "--preset", "seed-case", "--device", "model", "--seed", "7", "-o", path) == 0
    return path


def status(*arguments):
    """The exit status of `cuzkbench` with these arguments, in this process."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr(sys, "argv", ["cuzkbench", *map(str, arguments)])
        main()
    return ended.value.code or 0


@pytest.mark.parametrize("name", INTERFACE)
def test_every_command_of_the_interface_has_help(name, capsys):
    assert status(name, "--help") == 0
    assert name in capsys.readouterr().out
    assert set(INTERFACE) == set(COMMANDS)


def test_every_knob_of_the_plan_is_an_option_of_run():
    options = {parameter.name for parameter in COMMANDS["run"].params}
    assert options == {field.name for field in dataclasses.fields(RunPlan)} | {"output"}


def test_python_m_is_the_command():
    run = subprocess.run([sys.executable, "-m", "cuzkbench", "--version"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("cuzkbench 0.1.0\n")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--lock", "wide"), "lock 'wide': one of coarse, device, narrow"),
        (("--memory", "virtual"), "memory 'virtual': one of pageable, pinned, registered, staged"),
        (("--preset", "unheard-of"), "preset 'unheard-of': one of seed-case"),
        (("--device", "tpu"), "device 'tpu': one of auto, host, cuda, model"),
        (("--workers", "9"), "workers 9: from 1 to 8"),
        (("--log2-size", "7"), f"log2_size 7: from 8 to {LOG2_MAX}"),
        (("--log2-size", "28"), f"log2_size 28: from 8 to {LOG2_MAX}"),
        (("--seed", "-1"), "seed -1: from 0 to "),
        (("--device", "cuda:²"), "device 'cuda:²': auto, host, cuda, cuda:N or model"),
        (("--kernels", "timed:never"), "kernels 'timed:never': real or timed:SECONDS"),
        (("--partitions", "x"), "Invalid value"),
        (("--no-such-option",), "No such option"),
    ],
)
def test_wrong_usage_is_status_2_and_writes_nothing(arguments, says, tmp_path, capsys):
    path = tmp_path / "log.jsonl"
    assert status("run", *arguments, "-o", path) == 2
    captured = capsys.readouterr()
    assert says in captured.err
    assert not captured.out
    assert not list(tmp_path.iterdir())


def test_log_name_must_say_the_format(tmp_path, capsys):
    assert status("run", "--device", "model", "-o", tmp_path / "log.csv") == 2
    assert capsys.readouterr().err.startswith("cuzkbench: output ")
    assert not list(tmp_path.iterdir())


def test_unwritable_output_is_status_1_in_one_line(tmp_path, capsys):
    assert status("run", "--device", "model", "-o", tmp_path / "no such folder" / "log.jsonl") == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_a_log_is_never_written_over_by_its_own_trace_or_report(model_log, tmp_path, capsys):
    """`export LOG -o LOG` wrote a Chrome trace, its default, over the only copy of the log."""
    path = tmp_path / "log.parquet"
    path.write_bytes(model_log.read_bytes())
    for command in (["export", path], ["export", path, "--to", "parquet"], ["report", path], ["import", path]):
        assert status(*command, "-o", path) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert status("export", path, "-o", tmp_path / "trace.jsonl") == 2
    assert "add --to jsonl" in capsys.readouterr().err
    assert path.read_bytes() == model_log.read_bytes()
    assert [left.name for left in tmp_path.iterdir()] == ["log.parquet"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.parametrize("command", ["export", "report"])
def test_a_pipe_link_or_device_is_not_replaced_by_a_file(command, model_log, tmp_path, capsys):
    """`-o /dev/null` and `-o /dev/stdout` put regular files in their place, since files replace what was there."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    for name in ("pipe", "link"):
        assert status(command, model_log, "-o", tmp_path / name) == 2
        assert "a link, device or pipe" in capsys.readouterr().err
    assert (tmp_path / "pipe").is_fifo() and (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "old"


@pytest.mark.parametrize("command", ["export", "report"])
def test_an_output_that_is_a_folder_or_has_none_is_named_as_it_was_given(command, model_log, tmp_path, capsys):
    for path, says in ((tmp_path, "Is a directory"), (tmp_path / "none" / "x", "No such file or directory")):
        assert status(command, model_log, "-o", path) == 1
        assert capsys.readouterr().err == f"cuzkbench: {path}: {says}\n"


def test_demo_refuses_before_any_run(tmp_path, monkeypatch):
    (tmp_path / "report.html").mkdir()
    monkeypatch.setattr("cuzkbench.runs.run", None)  # a run would fail otherwise
    assert status("demo", "--out", tmp_path) == 1


@pytest.mark.parametrize("command", ["run", "demo"])
def test_ctrl_c_says_where_the_log_of_what_was_finished_is(command, tmp_path, monkeypatch, capsys):
    """The message was lost: the command ended with status 130 and not a word."""

    def interrupted(*_, **__):
        raise RunInterrupted(tmp_path / "half.jsonl")

    monkeypatch.setattr("cuzkbench.runs.run", interrupted)
    assert status(command, *(["-o", tmp_path / "half.jsonl"] if command == "run" else ["--out", tmp_path])) == 130
    assert str(tmp_path / "half.jsonl") in capsys.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="ulimit -v holds on Linux")
def test_too_little_address_space_is_status_1_in_one_line(tmp_path):
    """The run began, and ended in a traceback of 60 lines from the first allocation or thread that failed."""
    command = f"ulimit -v 2000000 && exec {sys.executable} -m cuzkbench run --device host --log2-size 22 -o log.jsonl"
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    run = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (run.returncode, run.stderr.count("\n")) == (1, 1), run.stderr
    assert run.stderr.startswith("cuzkbench: host memory: ") and not list(tmp_path.iterdir())


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), ImportError("x.so: failed to map segment")])
def test_a_limit_of_the_process_is_one_line_and_any_other_bug_a_traceback(error, monkeypatch, capsys):
    monkeypatch.setattr("cuzkbench.cli.app", lambda **_: (_ for _ in ()).throw(error))
    assert status("run") == 1
    assert capsys.readouterr().err == f"cuzkbench: out of memory, or of a limit of this process (ulimit -a): {error}\n"
    monkeypatch.setattr("cuzkbench.cli.app", lambda **_: (_ for _ in ()).throw(type(error)("a bug")))
    with pytest.raises(type(error), match="a bug"):
        main()


def test_a_limit_behind_a_loader_s_words_and_a_bare_memory_error_are_told_as_a_limit(monkeypatch, capsys):
    """Under `ulimit -v 300000`: "cuzkbench: MemoryError", and that libllvmlite.so could not be found."""

    def unloadable(**_):
        try:
            raise OSError("libllvmlite.so: failed to map segment from shared object")
        except OSError:
            raise OSError("Could not find/load shared object file") from None

    for fault in (unloadable, lambda **_: (_ for _ in ()).throw(MemoryError())):
        monkeypatch.setattr("cuzkbench.cli.app", fault)
        assert status("run") == 1
        assert capsys.readouterr().err.startswith("cuzkbench: out of memory, or of a limit of this process (ulimit -a)")


@pytest.mark.parametrize("where", ["import", "arguments"])
def test_ctrl_c_before_the_command_has_begun_is_a_line_and_status_130(where):
    """In the first third of a second Ctrl-C was a traceback out of an import, then status 130 without a word."""
    at = {
        "import": "sys.meta_path.insert(0, type('Stop', (), {'find_spec': stop}))",
        "arguments": "import typer; typer.core.TyperGroup.make_context = stop",
    }
    code = (
        "import sys\nfrom cuzkbench.__main__ import main\n"
        f"def stop(*_, **__): raise KeyboardInterrupt\n{at[where]}\nsys.argv = ['cuzkbench', 'doctor']\nmain()"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (130, "cuzkbench: interrupted\n")


def test_a_warning_is_one_line_without_source_text(tmp_path):
    code = "import warnings; from cuzkbench import cli; cli.app = lambda **_: warnings.warn('the cache'); cli.main()"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "cuzkbench: the cache\n")


@pytest.mark.parametrize(
    "error",
    [
        DeviceError("ntt", "2^8", "words"),
        LogFormatError("a.jsonl", "line 1", "what", "read"),
        RunFailed("why", Path("a.jsonl")),
        RunInterrupted(Path("a.jsonl")),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_comes_whole_from_another_process(error):
    """A run that failed in a sweep's process could not be unpickled, which broke the pool and every other run."""
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_cuda_without_a_gpu_says_what_is_missing(tmp_path, capsys):
    from cuzkbench.device import cuda_missing

    if cuda_missing() is None:
        pytest.skip("this machine has a GPU")
    assert status("run", "--device", "cuda", "-o", tmp_path / "log.jsonl") in (1, 2)
    err = capsys.readouterr().err
    assert cuda_missing() in err
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["explain", "compare", "whatif", "report", "import", "export"])
def test_a_file_that_is_no_log_is_status_1_in_one_line(command, tmp_path, capsys):
    path = tmp_path / "noise.bin"
    path.write_bytes(bytes(range(256)) * 4)
    more = {
        "whatif": ["--lock", "coarse"],
        "report": ["-o", tmp_path / "r.html"],
        "import": ["-o", tmp_path / "i.jsonl"],
    }
    more["export"] = ["-o", tmp_path / "e.json"]
    assert status(command, path, *more.get(command, [])) == 1
    captured = capsys.readouterr()
    assert "noise.bin" in captured.err
    assert captured.err.count("\n") == 1
    assert [left.name for left in tmp_path.iterdir()] == ["noise.bin"]


def test_a_missing_log_is_status_1(tmp_path, capsys):
    assert status("explain", tmp_path / "nothing.jsonl") == 1
    assert "nothing.jsonl" in capsys.readouterr().err


def test_run_says_which_file_it_wrote(tmp_path, capsys):
    path = tmp_path / "a.jsonl"
    assert status("run", "--device", "model", "-o", path) == 0
    assert f"wrote {path}" in capsys.readouterr().out.replace("\n", "").replace("wrote/", "wrote /")


def test_whatif_prints_the_labels_and_that_the_measured_cadence_reads_long(model_log, capsys):
    """The prediction of a simulated or emulated log did not say so; beside a captured one stood a cadence 9 % long."""
    assert status("whatif", model_log, "--memory", "pinned") == 0
    assert all(f"note: {label}" in capsys.readouterr().out for label in read(model_log).labels)
    captured = Path(__file__).parents[1] / "data" / "h200" / "seed-case.parquet"
    for change in (["--memory", "pinned"], ["--memory", "staged"]):
        assert status("whatif", captured, *change) == 0
        assert "note: GPU 0: warm-up was proved among the measured partitions" in capsys.readouterr().out


@pytest.mark.parametrize("columns", [80, 140])
def test_names_of_theories_and_causes_are_whole_on_a_narrow_terminal(columns, model_log):
    """At 80 columns the table said `lock-covers-tr…` and `synthesis-star…`."""
    answer = analysis.explain(read(model_log))
    console = Console(width=columns, record=True, file=io.StringIO())
    for part in explanation(answer):
        console.print(part)
    table = console.export_text().partition("\nTheories ")[2]
    assert all(theory["name"] in table for theory in answer["theories"])
    assert "…" not in table


def test_run_writes_what_read_reads_and_prints_the_labels(model_log, capsys):
    log = read(model_log)
    assert log.complete
    assert log.header["plan"]["preset"] == "seed-case"
    assert status("compare", model_log) == 0
    out = capsys.readouterr().out
    assert "kernel utilisation" in out
    assert all(label in out for label in log.labels)


@pytest.mark.parametrize(
    ("command", "keys"),
    [
        (
            ("explain",),
            {
                "log",
                "format",
                "device",
                "complete",
                "cut_at",
                "warnings",
                "proofs",
                "gpus",
                "theories",
                "jobs",
                "best_change",
            },
        ),
        (("compare",), {"logs"}),
        (("whatif", "--memory", "pinned"), {"changes", "measured_cadence_ns", "predicted", "supported", "why"}),
    ],
)
def test_json_is_one_document_with_the_keys_of_the_interface(command, keys, model_log, capsys):
    name, *options = command
    assert status(name, model_log, *options, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document.keys() >= keys


def test_explain_says_the_share_the_cause_and_the_change(model_log, capsys):
    assert status("explain", model_log) == 0
    out = capsys.readouterr().out
    assert "GPU 0 computed" in out
    assert "Supported: bounce-buffer" in out
    assert "The one change that gains most" in out


def test_fail_under_is_status_1_below_and_0_above(model_log, capsys):
    assert status("explain", model_log, "--json", "--fail-under", "0.01") == 0
    used = json.loads(capsys.readouterr().out)["gpus"][0]["kernel_utilisation"]
    assert status("explain", model_log, "--fail-under", str(used + 0.01)) == 1
    assert status("explain", model_log, "--fail-under", str(used - 0.01)) == 0


@pytest.mark.parametrize(
    "option", [("--fail-under", "90"), ("--fail-under", "nan"), ("--from", "nan"), ("--to", "inf"), ("--to", "1e300")]
)
def test_explain_refuses_a_number_that_says_nothing(option, model_log, capsys):
    """`--fail-under nan` passed every log, `--to inf` was a traceback."""
    assert status("explain", model_log, *option) == 2
    assert capsys.readouterr().err.startswith(f"cuzkbench: {option[0]} ")


def test_whatif_without_a_change_is_wrong_usage(model_log, capsys):
    assert status("whatif", model_log) == 2
    assert "--lock, --memory, --workers, --synthesis-workers" in capsys.readouterr().err


@pytest.mark.parametrize("to", ["jsonl", "parquet"])
def test_export_keeps_every_row(to, model_log, tmp_path):
    path = tmp_path / f"copy.{to}"
    assert status("export", model_log, "--to", to, "-o", path) == 0
    assert read(path).frame.equals(read(model_log).frame)


def test_export_to_chrome_is_json_with_every_interval(model_log, tmp_path):
    path = tmp_path / "trace.json"
    assert status("export", model_log, "--to", "chrome", "-o", path) == 0
    intervals = [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]
    assert len(intervals) >= (read(model_log).frame["phase"] != "COUNTER").sum()


def test_export_to_an_unknown_format_is_wrong_usage(model_log, tmp_path, capsys):
    assert status("export", model_log, "--to", "vcd", "-o", tmp_path / "trace.vcd") == 2
    assert "one of chrome, jsonl, parquet" in capsys.readouterr().err


def test_doctor_json_says_what_is_missing_and_how_to_get_it(capsys):
    assert status("doctor", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["host"]["cores"] >= 1
    assert facts["versions"]["cuzkbench"] == "0.1.0"
    assert facts["gpus"] or any(need["what"] == "CUDA" and need["how"] for need in facts["missing"])


def test_sweep_runs_every_combination(tmp_path, capsys):
    over = ["--over", "device=model", "--over", "lock=coarse,narrow", "--over", "memory=pinned,pageable"]
    assert status("sweep", *over, "--over", "seed=3", "-o", tmp_path / "matrix") == 0
    written = {path.stem: read(path).header["plan"] for path in (tmp_path / "matrix").iterdir()}
    assert {(plan["lock"], plan["memory"]) for plan in written.values()} == {
        (lock, memory) for lock in ("coarse", "narrow") for memory in ("pinned", "pageable")
    }
    assert all(f"model-{plan['lock']}-{plan['memory']}-3" == name for name, plan in written.items())
    assert "model-coarse-pinned-3" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("over", "says"),
    [
        (["lock"], "NAME=VALUE"),
        (["lock=narrow", "lock=coarse"], "named twice"),
        (["colour=red"], "knob 'colour'"),
        (["workers=2,99"], "workers 99"),
        (["workers=2.5"], "workers 2.5: int is needed"),
        (["device=5"], "device 5: str is needed"),
        (["verify=1"], "verify 1: bool is needed"),
        (["seed=true"], "seed True: int is needed"),
    ],
)
def test_sweep_refuses_before_any_run(over, says):
    with pytest.raises(ValueError, match=says):
        plans(over)


def test_sweep_on_processes_equals_sweep_here(tmp_path):
    over = ["--over", "device=model", "--over", "workers=1,2", "--over", "seed=3"]
    assert status("sweep", *over, "-o", tmp_path / "here") == 0
    assert status("sweep", *over, "--cluster", "local:2", "-o", tmp_path / "there") == 0
    for path in (tmp_path / "here").iterdir():
        assert (
            read(path).frame.drop(columns="run").equals(read(tmp_path / "there" / path.name).frame.drop(columns="run"))
        )


def test_sweep_on_a_dask_cluster_equals_sweep_here(tmp_path):
    from distributed import LocalCluster

    over = ["--over", "device=model", "--over", "memory=pinned,pageable", "--over", "seed=3"]
    assert status("sweep", *over, "-o", tmp_path / "here") == 0
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster:
        address = cluster.scheduler_address
        assert status("sweep", *over, "--cluster", address, "-o", tmp_path / "there") == 0
    for path in (tmp_path / "here").iterdir():
        assert (
            read(path).frame.drop(columns="run").equals(read(tmp_path / "there" / path.name).frame.drop(columns="run"))
        )


def test_sweep_goes_on_after_a_failed_run_and_says_so(tmp_path, capsys):
    over = ["--over", "device=model,cuda:63", "--over", "seed=3"]
    assert status("sweep", *over, "-o", tmp_path / "matrix") == 1
    assert [path.name for path in (tmp_path / "matrix").iterdir()] == ["model-3.parquet"]
    assert "cuda_63-3: device cuda:63" in capsys.readouterr().err
