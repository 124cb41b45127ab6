"""Everything that can be looked at, as a static folder: each notebook executed, a report of each sample, an index."""

from __future__ import annotations

import base64
import re
from html import escape
from pathlib import Path
from typing import NamedTuple

from cuzkbench import report
from cuzkbench.analysis import explain
from cuzkbench.logs import read
from cuzkbench.report.parts import verdict
from cuzkbench.tables import show

TOGETHER = 3  # logs of one folder that share a report; of more, each has its own
TITLE = "Why is the GPU of a zero-knowledge prover idle half the time, and what would fix it?"
PICTURE = "docs/demo.png"  # of a checkout; its words are those of the README
_LOGS = (".jsonl", ".log", ".parquet")


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
    answered = []
    for folder in sorted(path for path in (source / "data").iterdir() if path.is_dir()):
        logs = [path for path in sorted(folder.iterdir()) if path.suffix in _LOGS]
        for group in [logs] if len(logs) <= TOGETHER else [[path] for path in logs]:
            answered += [_report(folder.name, group, out)] if group else []
    index = "".join(
        f"<h2>{heading}</h2>" + "".join(_entry(page) for page in pages)
        for heading, pages in (("Notebooks", asked), ("Reports of sample logs", answered))
    )
    drawn = base64.b64encode((source / PICTURE).read_bytes()).decode()
    words = re.search(rf"!\[(.*?)\]\({PICTURE}\)", (source / "README.md").read_text(encoding="utf-8"))
    picture = f'<img alt="{escape(words[1] if words else "")}" src="data:image/png;base64,{drawn}">\n'
    cell = {"cell_type": "markdown", "id": "index", "metadata": {}, "source": f"# {TITLE}\n\n{picture}{index}"}
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (out / "index.html").write_text(report.page(notebook, TITLE), encoding="utf-8")
    return [Page("index.html", TITLE, ""), *asked, *answered]


def _entry(page: Page) -> str:
    return f'<p class="entry"><a href="{escape(page.file)}">{escape(page.title)}</a><br>{escape(page.says)}</p>'


def _notebook(path: Path, source: Path, out: Path) -> Page:
    import nbformat
    from nbclient import NotebookClient

    show(f"notebook {path.name}")
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(source)}}).execute()
    heading, *rest = notebook.cells[0].source.split("\n\n")
    title, says = heading.removeprefix("# "), re.sub(r"\[(.*?)\]\(.*?\)|[*`]", r"\1", " ".join(rest[:1]))
    page = Page(f"{path.stem}.html", title.splitlines()[0], " ".join(says.split()))
    (out / page.file).write_text(report.page(notebook, page.title, home="index.html"), encoding="utf-8")
    return page


def _report(folder: str, paths: list[Path], out: Path) -> Page:
    show(f"report of {', '.join(path.name for path in paths)}")
    logs = sorted(map(read, paths), key=lambda log: str(log.header["epoch_utc"]))  # as they were run
    page = Page(
        f"{folder}-{paths[0].stem}.html" if len(paths) == 1 else f"{folder}.html",
        " against ".join(log.title for log in logs),
        " ".join(verdict(explain(log)) for log in logs),
    )
    report.write(logs, out / page.file)
    return page
