"""The document about one log, the stretches of a run, logs side by side, and the reference page of all columns."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pandas as pd
import pytest

from cuzkbench import analysis
from cuzkbench.analysis.predictions import predictions
from cuzkbench.analysis.stretches import course
from cuzkbench.events import GapCause
from cuzkbench.logs.log import Log
from cuzkbench.plan import RunPlan
from cuzkbench.simulate import simulate
from cuzkbench.tables import comparison, explanation
from tests import handmade
from tests.handmade import MS, row


@pytest.fixture(scope="module")
def seed_case() -> Log:
    return simulate(RunPlan.named("seed-case", device="model"), seed=1)


TOP = ["log", "format", "device", "complete", "cut_at", "warnings", "proofs", "gpus", "theories", "jobs", "best_change"]
GPU = [
    "gpu", "window_ns", "kernel_busy_ns", "kernel_utilisation", "idle_ns", "idle_gaps", "lock_utilisation",
    "worker_utilisation", "hidden_transfer", "interleaving", "partitions", "cadence_ns", "median_cadence_ns",
    "ideal_cadence_ns", "efficiency", "prove_start_ms", "bandwidth_gb_s", "causes", "all_operations",
]  # fmt: skip
OPERATIONS = [
    "span_ns", "kernels", "copies", "memsets", "kernel_union_ns", "copy_union_ns", "overlap_ns", "busy_ns", "idle_ns",
    "idle_gaps", "pageable_copy_union_ns",
]  # fmt: skip


def test_the_document_has_the_agreed_keys_and_only_json_values(seed_case: Log):
    answer = analysis.explain(seed_case)
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer
    assert set(TOP) <= set(answer)
    (gpu,) = answer["gpus"]
    assert set(GPU) <= set(gpu) and list(gpu["all_operations"]) == OPERATIONS
    assert sum(gpu["causes"].values()) == gpu["idle_ns"] and set(gpu["causes"]) <= {cause.value for cause in GapCause}
    assert gpu["idle_ns"] == gpu["window_ns"] - gpu["kernel_busy_ns"] and isinstance(gpu["cadence_ns"], int)
    spread = gpu["prove_start_ms"]
    assert spread["min"] <= spread["median"] <= spread["max"]
    assert set(gpu["bandwidth_gb_s"]["H2D"]) == {"PAGEABLE", "PINNED"}
    assert answer["theories"][0]["name"] == "bounce-buffer" and answer["best_change"]["change"] == "memory pinned"
    assert answer["device"]["kind"] == "simulated" and answer["complete"] and answer["format"] == "native"


def test_the_document_agrees_with_the_frames(seed_case: Log):
    (gpu,), one = analysis.explain(seed_case)["gpus"], analysis.metrics(seed_case).iloc[0]
    for name in ("window_ns", "kernel_utilisation", "cadence_ns", "efficiency", "hidden_transfer"):
        assert gpu[name] == one[name]


def test_a_part_of_the_run_is_explained_by_itself(seed_case: Log):
    (whole,) = analysis.explain(seed_case)["gpus"]
    change = whole["stretches"][0]["end_ns"]
    (after,) = analysis.explain(seed_case, start_ns=change)["gpus"]
    (before,) = analysis.explain(seed_case, end_ns=change)["gpus"]
    assert before["window_ns"] + after["window_ns"] == whole["window_ns"]
    assert before["idle_ns"] + after["idle_ns"] == whole["idle_ns"] == sum(whole["causes"].values())
    assert sum(after["causes"].values()) == after["idle_ns"]
    assert before["kernel_utilisation"] > 0.8 > 0.6 > after["kernel_utilisation"]
    assert after["all_operations"] == whole["all_operations"]
    with pytest.raises(ValueError, match="must end after it starts"):
        analysis.explain(seed_case, start_ns=5, end_ns=5)


def test_a_log_without_gpu_activity_says_so():
    answer = analysis.explain(handmade.log(row("SYNTHESIS", 0, 10), device_kind="foreign"))
    assert answer["gpus"] == [] and answer["best_change"] is None
    assert "no GPU activity" in " ".join(answer["warnings"])
    assert all(theory["verdict"] == "cannot tell" for theory in answer["theories"])


def test_a_log_of_copies_only_is_not_called_healthy():
    answer = analysis.explain(handmade.log(row("H2D", 0, 10, memory="PAGEABLE", bytes=100), line_rate_gb_s=None))
    (gpu,) = answer["gpus"]
    assert (gpu["window_ns"], gpu["kernel_utilisation"], gpu["causes"]) == (0, 0.0, {})
    assert gpu["all_operations"]["busy_ns"] == 10 and gpu["cadence_ns"] is None and gpu["prove_start_ms"] is None
    told = " ".join(answer["warnings"])
    assert "GPU 0: no kernel" in told and "assumed" in told
    assert not any(theory["verdict"] == "supported" for theory in answer["theories"])


def test_a_log_that_already_says_no_gpu_activity_says_it_once():
    log = handmade.log(row("SYNTHESIS", 0, 10), device_kind="foreign")
    said = "This log holds no GPU activity: nothing can be said about the GPU."
    assert analysis.explain(Log(log.frame, log.header, None, None, (said,)))["warnings"] == [said]


def chain(lengths: list[tuple[int, int]]) -> Log:
    """Partitions one after the other, each (idle before its kernel, kernel) in ms."""
    rows, at = [], 0
    for partition, (idle, kernel) in enumerate(lengths):
        rows.append(row("KERNEL", at + idle, at + idle + kernel, partition, partition % 2))
        at += idle + kernel
    return handmade.log(*rows, scale=MS)


def test_a_run_that_chains_and_then_gaps_is_cut_at_the_end_of_the_last_chained_kernel():
    # five partitions of 10 ms back to back end at 50; then five with 10 to 12 ms of idle before 10 ms
    found = analysis.stretches(chain([(0, 10)] * 5 + [(10, 10), (12, 10), (10, 10), (12, 10), (10, 10)]))
    assert found["start_ns"].tolist() == [0, 50 * MS] and found["end_ns"].tolist() == [50 * MS, 154 * MS]
    assert found["kernel_utilisation"].tolist() == [1.0, 50 / 104]
    assert course(found) == "chains until 0.05 s (100% busy), then gaps (48% busy)"


def test_three_manners_give_three_stretches():
    found = analysis.stretches(chain([(0, 10)] * 6 + [(10, 10)] * 6 + [(2, 10)] * 6))
    assert (found["end_ns"] // MS).tolist() == [60, 180, 252]


@pytest.mark.parametrize(
    "lengths",
    [
        [(0, 10)] * 12,
        [(8, 10)] * 12,
        [(0, 100)] * 6 + [(6, 100)] * 6,  # clear, but too small a change to speak of
        [(0, 10), (12, 10)] * 6,  # two workers alternate: that is one manner
        [(1, 10), (9, 10), (4, 10), (7, 10), (2, 10), (8, 10), (5, 10), (0, 10), (6, 10), (3, 10)],
        [(0, 10), (30, 10)],
    ],
)
def test_a_run_of_one_manner_is_one_stretch(lengths):
    assert len(analysis.stretches(chain(lengths))) == 1


def test_a_trace_without_partitions_is_looked_at_in_equal_steps():
    rows = [row("KERNEL", at, at + 10, -1, -1) for at in range(0, 300, 10)]
    rows += [row("KERNEL", at, at + 2, -1, -1) for at in range(300, 600, 10)]
    found = analysis.stretches(handmade.log(*rows, device_kind="foreign"))
    assert len(found) == 2 and abs(found["end_ns"].iloc[0] - 300) <= 10


def test_logs_side_by_side_have_their_plan_and_relative_cadence(seed_case: Log):
    fixed = simulate(RunPlan.named("fixed", device="model"), seed=1)
    frame = analysis.compare([seed_case, fixed])
    assert frame["memory"].tolist() == ["pageable", "pinned"] and frame["lock"].tolist() == ["narrow", "narrow"]
    assert frame["relative_cadence"].iloc[0] == 1.0
    assert frame["relative_cadence"].iloc[1] == frame["cadence_ns"].iloc[1] / frame["cadence_ns"].iloc[0]
    assert frame["largest_cause"].iloc[0] == "SLOW_TRANSFER"
    assert frame["h2d_gb_s"].iloc[1] > frame["h2d_gb_s"].iloc[0]


PAGE = Path(analysis.__file__).parent / "COLUMNS.md"


def documented() -> dict[str, list[str]]:
    """Heading -> the first cells of the table rows under it."""
    found: dict[str, list[str]] = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            found[line[3:].strip()] = []
        elif line.startswith("| ") and found:
            name = line.split("|")[1].strip()
            if name != "column":
                found[list(found)[-1]].append(name)
    return found


def test_every_returned_column_is_on_the_reference_page(seed_case: Log):
    frames: dict[str, pd.DataFrame] = {
        name: getattr(analysis, name)(seed_case)
        for name in ("metrics", "partitions", "bandwidth", "jobs", "all_operations", "gaps", "stretches", "theories")
    }
    written = documented()
    frames["predictions"] = predictions({})
    for name, frame in frames.items():
        assert written.pop(name) == list(frame.columns), name
    columns = list(analysis.compare([seed_case]).columns)
    own = written.pop("compare")
    inside = columns.index("kernels") + 1
    assert columns == own[:inside] + list(frames["metrics"].columns) + own[inside:]
    assert written == {}


def test_empty_answers_have_the_columns_of_full_ones(seed_case: Log):
    nothing = handmade.log(row("SYNTHESIS", 0, 10))
    for name in ("metrics", "partitions", "bandwidth", "jobs", "all_operations", "gaps", "stretches", "theories"):
        function = getattr(analysis, name)
        assert list(function(nothing).columns) == list(function(seed_case).columns), name


def test_functions_are_not_hidden_by_modules_of_the_same_name():
    for name in ("explain", "gaps", "metrics", "stretches", "theories", "whatif"):
        import_module(f"cuzkbench.analysis.{name}")
        assert callable(getattr(analysis, name)), name


def test_side_by_side_a_log_without_gpu_has_its_column_and_notes_say_whose_they_are():
    """Its column was missing, and "This log holds no GPU activity" stood under the other log's figures."""
    busy = handmade.log(row("KERNEL", 0, 10), labels=["shared"])
    cpu = handmade.log(row("SYNTHESIS", 0, 10), labels=["shared", "no GPU"])
    table, *notes = comparison([busy, cpu], ["one", "two"])
    assert [str(column.header) for column in table.columns] == ["figure", "one", "two"]
    assert [str(note) for note in notes] == ["note: shared", "note: two: no GPU"]


def test_theories_that_all_say_the_same_are_one_sentence():
    answer = analysis.explain(handmade.log(row("KERNEL", 0, 10, partition=-1), row("KERNEL", 20, 30, partition=-1)))
    assert (
        str(explanation(answer)[-1]) == "Theories: cannot tell, since the log has no kernels whose partition is known."
    )


@pytest.mark.parametrize(("turns", "said"), [([0, 10, 20, 30], ""), ([10, 0, 20, 30], "1 of 4: cadence")])
def test_a_warmup_proved_among_the_measured_is_told(turns: list[int], said: str):
    """An H200 run of 12 partitions read 91.6 ms where every turn took 83: the warm-up was proved second."""
    rows = [row("KERNEL", at * MS, (at + 10) * MS, n, warmup=n == 0) for n, at in enumerate(turns)]
    warnings = " ".join(analysis.explain(handmade.log(*rows))["warnings"])
    assert ("warm-up was proved among" in warnings) is bool(said) and said in warnings
    assert "about 50% long" in warnings or not said
