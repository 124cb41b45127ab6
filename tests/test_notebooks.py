"""Every notebook keeps the house's contract, and runs top to bottom from a fresh kernel."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
INDEX = ROOT / "notebooks" / "00_index.ipynb"
QUESTIONS = [path for path in NOTEBOOKS if path != INDEX]  # the index leads to questions and puts none of its own
REPORT = ROOT / "cuzkbench" / "templates" / "report.ipynb"
PREDICTION = re.compile(r"^\*\*Prediction (\d+)\.\*\*", re.MULTILINE)
DRAWS = re.compile(r"\bcharts\.|\bgo\.|\bfigure\(")
LINES = 12


def cells(path: Path) -> list[tuple[str, str]]:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]]


def broken_contract(parts: list[tuple[str, str]]) -> list[str]:
    """What a notebook of questions and predictions does wrong, in words."""
    wrong = []
    if not re.match(r"# .+\?$", parts[0][1].splitlines()[0]):
        wrong.append("the title does not ask")
    if not 15 <= len(parts) <= 30:
        wrong.append(f"{len(parts)} cells: 15 to 30")
    if "## What this does not show" not in parts[-1][1]:
        wrong.append("the last cell does not say what this does not show")
    said, figures_since, asserts_since = 0, 0, 1
    for kind, source in parts:
        if kind == "markdown":
            for number in map(int, PREDICTION.findall(source)):
                if not asserts_since:
                    wrong.append(f"prediction {said} is not asserted")
                if number != said + 1:
                    wrong.append(f"prediction {number} follows {said}")
                said, figures_since, asserts_since = number, 0, 0
            continue
        if len(source.splitlines()) > LINES:
            wrong.append(f"a code cell of {len(source.splitlines())} lines")
        if DRAWS.search(source):
            figures_since += 1
            if not said:
                wrong.append("a figure before any prediction")
            if asserts_since:
                wrong.append(f"a figure after prediction {said} was judged")
        if re.search(r"^\s*assert ", source, re.MULTILINE):
            if said and not figures_since:
                wrong.append(f"prediction {said} is judged before its figure")
            asserts_since += 1
    if not asserts_since:
        wrong.append(f"prediction {said} is not asserted")
    if said < 3:
        wrong.append(f"{said} predictions: three or more")
    return wrong


def test_notebooks_are_found():
    assert len(NOTEBOOKS) >= 2 and all(re.match(r"\d\d_[a-z0-9_]+\.ipynb$", path.name) for path in NOTEBOOKS)


def test_index_leads_to_every_notebook_by_its_question():
    assert NOTEBOOKS[0] == INDEX
    links = re.findall(r"^\| \[(.+?)\]\((\S+)\)", cells(INDEX)[0][1], re.MULTILINE)
    assert links == [(cells(path)[0][1].splitlines()[0].removeprefix("# "), path.name) for path in QUESTIONS]


@pytest.mark.parametrize("path", QUESTIONS, ids=lambda path: path.stem)
def test_contract_of_questions_predictions_and_asserts(path):
    assert broken_contract(cells(path)) == []


@pytest.mark.parametrize("path", [*NOTEBOOKS, REPORT], ids=lambda path: path.stem)
def test_outputs_are_stripped(path):
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        assert not cell.get("outputs") and cell.get("execution_count") is None


def test_contract_sees_each_fault():
    good = [("markdown", "# Why?")] + [("code", "x = 1")] * 10
    for number in (1, 2, 3):
        good += [("markdown", f"**Prediction {number}.** so"), ("code", "charts.gantt(log)"), ("code", "assert x")]
    good += [("markdown", "## What this does not show")]
    assert broken_contract(good) == []
    faults = {
        "the title does not ask": [("markdown", "# Why"), *good[1:]],
        "prediction 1 is not asserted": good[:13] + good[14:],
        "prediction 3 follows 1": good[:14] + good[17:],
        "a figure after prediction 1 was judged": [*good[:14], ("code", "charts.causes(log)"), *good[14:]],
        "a figure before any prediction": [good[0], ("code", "go.Figure()"), *good[2:]],
        "prediction 2 is judged before its figure": good[:15] + good[16:],
        "a code cell of 13 lines": [good[0], ("code", "x = 1\n" * 13), *good[2:]],
        "the last cell does not say what this does not show": good[:-1],
        "32 cells: 15 to 30": [good[0], *[("code", "x = 1")] * 11, *good[1:]],
    }
    for fault, parts in faults.items():
        assert fault in broken_contract(parts), fault


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_from_a_fresh_kernel(path):
    nbclient = pytest.importorskip("nbclient")
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(ROOT)}}).execute()
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")
