"""Everything that can be looked at, as a static folder: each notebook executed, reports of sample logs, an index."""

from __future__ import annotations

import json
import re
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from cuzkbench import report
from cuzkbench.analysis import explain
from cuzkbench.charts import compare
from cuzkbench.logs import read
from cuzkbench.logs.log import told_apart
from cuzkbench.report.execute import PLOTLY
from cuzkbench.report.parts import verdict
from cuzkbench.tables import show

TITLE = "Why is the GPU of a zero-knowledge prover idle half the time, and what would fix it?"
FIRST = "The puzzle and its mend, proved by an H200"  # the sample that the index draws
SAYS = """Two workers share one NVIDIA H200 and prove the same partitions twice, beside a loaded CPU. In the first run
the vectors live in ordinary (pageable) memory: every upload is longer than the kernels that should hide it, and the GPU
waits. In the second run they live in pinned memory, and the kernels follow one another."""
SAMPLES = {  # what a report asks: the logs in data/ that answer
    "The puzzle and its mend, proved by two CPU cores behind an emulated link": (
        "demo/seed-case.parquet",
        "demo/fixed.parquet",
    ),
    FIRST: ("h200/seed-case.parquet", "h200/fixed.parquet"),
    "What should the lock cover? An H200 with copies of half production's size and timed kernels": (
        "h200/timed-coarse-pinned.parquet",
        "h200/timed-device-pinned.parquet",
        "h200/timed-narrow-pinned-load.parquet",
    ),
    "Which memory should the vectors live in? An H200 with real kernels": (
        "h200/real-narrow-pageable.parquet",
        "h200/real-narrow-registered.parquet",
        "h200/real-narrow-staged.parquet",
        "h200/real-narrow-pinned.parquet",
    ),
    "What does the log of another engine tell?": ("examples/engine.log",),
}


class Page(NamedTuple):
    """One page of the gallery: its file's name, what it asks, and what it says in short."""

    file: str
    title: str
    says: str


def build(source: Path, out: Path) -> list[Page]:
    """Write the gallery of a checkout's notebooks/ and data/ into a folder; whatever a notebook raises is raised on.

    Raises OSError where there is no such checkout or the folder cannot be written.
    """
    notebooks = sorted((source / "notebooks").glob("*.ipynb"))
    if not notebooks:
        raise FileNotFoundError(f"{source / 'notebooks'}: no notebooks; name a checkout with --source")
    out.mkdir(parents=True, exist_ok=True)
    asked = [_notebook(path, source, out) for path in notebooks]
    answered = [_report(title, [source / "data" / name for name in names], out) for title, names in SAMPLES.items()]
    text = ""
    for heading, pages in (("Notebooks", asked), ("Reports of sample logs", answered)):
        entries = (f'<p><a href="{page.file}">{escape(page.title)}</a><br>{escape(page.says)}</p>' for page in pages)
        text += f'<h2>{heading}</h2><div class="pair">{"".join(entries)}</div>'
    (out / "index.html").write_text(report.page(_index(source, text), TITLE), encoding="utf-8")
    return [Page("index.html", TITLE, ""), *asked, *answered]


def _index(source: Path, text: str) -> dict[str, Any]:
    """The index as an executed notebook: the question, the two runs that show it, and where to read on."""
    runs = [read(source / "data" / name) for name in SAMPLES[FIRST]]
    drawn = {"output_type": "display_data", "metadata": {}, "data": {PLOTLY: json.loads(compare(runs).to_json())}}
    cells: list[dict[str, Any]] = [
        {"cell_type": "markdown", "id": "question", "metadata": {}, "source": f"# {TITLE}\n\n{SAYS}"},
        {"cell_type": "code", "id": "runs", "metadata": {}, "source": "", "execution_count": None, "outputs": [drawn]},
        {"cell_type": "markdown", "id": "pages", "metadata": {}, "source": text},
    ]
    return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def _notebook(path: Path, source: Path, out: Path) -> Page:
    import nbformat
    from nbclient import NotebookClient

    show(f"notebook {path.name}")
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(source)}}).execute()
    title, _, rest = notebook.cells[0].source.removeprefix("# ").partition("\n")
    says = re.sub(r"\[(.*?)\]\(.*?\)|[*`]", r"\1", rest.strip().split("\n\n")[0])
    page = Page(f"{path.stem}.html", title, " ".join(says.split()))
    text = re.sub(r'href="(\w+)\.ipynb"', r'href="\1.html"', report.page(notebook, title, home="index.html", code=True))
    (out / page.file).write_text(text, encoding="utf-8")
    return page


def _report(title: str, paths: list[Path], out: Path) -> Page:
    show(f"report of {', '.join(path.name for path in paths)}")
    logs = [read(path) for path in paths]
    file = "-".join(re.findall("[a-z0-9]+", title.lower())[:9]) + ".html"
    report.write(logs, out / file, home="index.html")
    who = f"{told_apart(logs)[0]}: " if len(logs) > 1 else ""
    return Page(file, title, who + verdict(explain(logs[0])))
