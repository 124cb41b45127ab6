"""The what-if panel against the analysis that it asks, and what it says where a log cannot tell."""

from __future__ import annotations

from typing import Any

import pytest

from cuzkbench import panel
from cuzkbench.analysis import replay as replaying
from cuzkbench.analysis import whatif
from cuzkbench.plan import RunPlan
from cuzkbench.simulate import simulate
from cuzkbench.words import duration, percent
from tests.handmade import MS, log, row

SLOW = simulate(RunPlan.named("seed-case", device="model", seed=1))


def opened(made: Any = SLOW) -> tuple[dict[str, Any], Any]:
    """The controls by name, and the widget that holds the answer."""
    *rows, answer = panel.whatif(made).children
    names = ("lock", "memory", "workers", "synthesis_workers", "link_gb_s")
    controls = [row.children[-1] if hasattr(row, "children") else row for row in rows]
    return dict(zip(names, controls, strict=True)), answer


def test_controls_begin_at_the_log_s_own_policies():
    controls, answer = opened()
    assert {name: control.value for name, control in controls.items()} == {
        "lock": "narrow", "memory": "pageable", "workers": 2, "synthesis_workers": 10, "link_gb_s": 0.0,
    }  # fmt: skip
    assert "As it ran" in answer.value and "simulated at production scale" in answer.value


@pytest.mark.parametrize(
    "changes",
    [{"memory": "pinned"}, {"lock": "coarse"}, {"workers": 3, "memory": "pinned"}, {"synthesis_workers": 2}],
)
def test_answer_vs_analysis(changes):
    controls, answer = opened()
    for name, value in changes.items():
        controls[name].value = value
    low, middle, high = whatif(SLOW, **changes)["predicted"]["cadence_ns"]
    assert f"a partition every {duration(middle)} ({duration(low)} to {duration(high)})" in answer.value
    for name, value in changes.items():
        assert f"{name.replace('_', ' ')} {value}" in answer.value


def test_link_rate_vs_analysis():
    controls, answer = opened()
    rates = [value for _, value in controls["link_gb_s"].options]
    controls["link_gb_s"].value = rates[-1]
    assert duration(whatif(SLOW, link_gb_s=rates[-1])["predicted"]["cadence_ns"][1]) in answer.value


def test_what_the_log_never_saw_is_said_and_the_way_back_works():
    controls, answer = opened()
    before = answer.value
    controls["memory"].value = "staged"
    assert "With memory staged: this log cannot say." in answer.value and "no staged copy" in answer.value
    controls["memory"].value = "pageable"
    assert answer.value == before


def test_a_log_without_partitions_says_why():
    shown = panel.whatif(log(row("KERNEL", 0, 3, -1), scale=MS, device_kind="foreign", run="<b>r</b>"))
    assert "no what-if" in shown.value and "<b>r</b>" not in shown.value.replace("<b>handmade</b>", "")


def test_long_logs_are_answered_from_their_beginning(monkeypatch):
    """1,000 partitions replayed 31 times would take seconds for each turn of a control."""
    replayed = []
    own = replaying.simulate_core
    monkeypatch.setattr(replaying, "simulate_core", lambda shape, work: replayed.append(len(work)) or own(shape, work))
    controls, answer = opened(simulate(RunPlan.named("seed-case", device="model", partitions=1000)))
    replayed.clear()
    controls["memory"].value = "pinned"
    assert "With memory pinned" in answer.value
    assert 0 < sum(replayed) <= 36 * panel.FIRST  # 30 resamples, and the log's own stages in each way of sharing


def test_utilisation_vs_analysis():
    controls, answer = opened()
    controls["memory"].value = "pinned"
    assert percent(whatif(SLOW, memory="pinned")["predicted"]["kernel_utilisation"][1]) in answer.value
