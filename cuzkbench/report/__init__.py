"""Logs into one HTML file: the report's notebook is executed and rendered by our own template, all parts embedded."""

from __future__ import annotations

import base64
import gzip
import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

from cuzkbench.logs.log import Log, told_apart
from cuzkbench.outputs import replacing
from cuzkbench.words import glued

EMBED_BYTES = 3_000_000  # a log above is not embedded, and the page says so
PLOTLY_JS = "plotly-cartesian-4.1.1.min.js.gz"  # the traces in use, a quarter of the whole; see templates/README.md
_TEMPLATES = resources.files("cuzkbench") / "templates"


def write(logs: Sequence[Log], path: str | Path, home: str = "") -> None:
    """One self-contained HTML file about one or several logs, whole or not at all; `home` is its gallery's index.

    Raises ValueError without a log, OSError where the file cannot be written.
    """
    if not logs:
        raise ValueError("a report needs at least one log")
    target = Path(path)
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in file_names(logs)]
        for log, file in zip(logs, files, strict=True):
            log.save(file)
        page = render(files, " against ".join(told_apart(logs)), home)
    with replacing(target) as partial:
        partial.write_text(page, encoding="utf-8", errors="replace")  # the name of a file may be no UTF-8


def file_names(logs: Sequence[Log]) -> list[str]:
    """A distinct, harmless Parquet file name for each log: as its file is called, else as the log is."""
    names: list[str] = []
    for log in logs:
        called = Path(log.path).name.split(".")[0] if log.path else log.title
        stem = re.sub(r"[^A-Za-z0-9_]+", "-", called).strip("-_")[:40] or "log"
        number = next(n for n in range(1, len(logs) + 1) if (f"{stem}-{n}" if n > 1 else stem) not in names)
        names.append(f"{stem}-{number}" if number > 1 else stem)
    return [f"{name}.parquet" for name in names]


def embeds(file: Path) -> bool:
    """Whether a page carries this log."""
    return file.stat().st_size <= EMBED_BYTES


def render(files: Sequence[Path], title: str, home: str = "") -> str:
    """The page about the logs in these files: the notebook's outputs in our template."""
    from cuzkbench.report.execute import execute

    notebook = json.loads((_TEMPLATES / "report.ipynb").read_text(encoding="utf-8"))
    done = execute(notebook, paths=[str(file) for file in files])
    return page(done, f"Why is the GPU idle? {title}", files, home)


def page(
    notebook: Mapping[str, Any], title: str, files: Sequence[Path] = (), home: str = "", code: bool = False
) -> str:
    """An executed notebook as one self-contained page that carries these files.

    `home` links to the index of a gallery; `code` shows each cell's source above its outputs.
    """
    import nbformat
    from nbconvert import TemplateExporter
    from nbconvert.filters import Highlight2HTML
    from pygments.formatters import HtmlFormatter

    from cuzkbench import __version__, glossary
    from cuzkbench.report.execute import PLOTLY

    drawn = any(PLOTLY in output.get("data", ()) for cell in notebook["cells"] for output in cell.get("outputs", ()))
    parts = {
        "title": title,
        "home": home,
        "code": code,
        "glossary": glossary.listed(),
        "highlight": HtmlFormatter(style="friendly").get_style_defs(".highlight") if code else "",
        "version": __version__,
        "style": (_TEMPLATES / "report" / "style.css").read_text(encoding="utf-8"),
        "script": (_TEMPLATES / "report" / "page.js").read_text(encoding="utf-8"),
        "plotly": gzip.decompress((_TEMPLATES / PLOTLY_JS).read_bytes()).decode() if drawn else "",
        "files": [(file.name, base64.b64encode(file.read_bytes()).decode()) for file in files if embeds(file)],
    }
    exporter = TemplateExporter(
        template_name="report", template_file="index.html.j2", extra_template_basedirs=[str(_TEMPLATES)]
    )
    exporter.register_filter("highlighted", Highlight2HTML())
    exporter.register_filter("glued", glued)
    exporter.register_filter("explained", partial(glossary.explained, told=set()))
    text, _ = exporter.from_notebook_node(nbformat.from_dict(notebook), {"cuzkbench": parts})
    return text
