"""The report: one file that carries everything, says only what it may, and gives the logs back."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import hashlib
import json
import re
import shlex
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import plotly.offline
import pytest

from cuzkbench import read, report
from cuzkbench.analysis.explain import explain
from cuzkbench.analysis.gaps import gaps
from cuzkbench.analysis.metrics import metrics
from cuzkbench.logs.log import Log
from cuzkbench.plan import RunPlan
from cuzkbench.report import parts
from cuzkbench.report.execute import PLOTLY, execute
from cuzkbench.report.whatif import whatif
from cuzkbench.simulate import simulate
from cuzkbench.words import duration
from tests import handmade
from tests.handmade import MS, row

TEMPLATES = Path(report.__file__).parents[1] / "templates"
SCRIPT_LINES = 150


@pytest.fixture(scope="module")
def runs() -> list[Log]:
    return [simulate(RunPlan.named(preset, device="model", seed=5)) for preset in ("seed-case", "fixed")]


@pytest.fixture(scope="module")
def page(runs: list[Log], tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("report") / "report.html"
    report.write(runs, path)
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]
    return path.read_text(encoding="utf-8")


class Tags(HTMLParser):
    """Every start tag with its attributes, and the text of scripts by their data-name."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def embedded(page: str) -> dict[str, bytes]:
    found = re.findall(r'<script type="application/octet-stream" data-name="([^"]+)">([^<]+)</script>', page)
    return {name: base64.b64decode(data) for name, data in found}


def figures(page: str) -> Iterator[dict[str, Any]]:
    for text in re.findall(r'<script type="application/json">(.*?)</script>', page, re.DOTALL):
        yield json.loads(text)


def test_no_tag_fetches_anything(page):
    for tag, attributes in Tags(page).tags:
        for name in ("src", "href", "action", "poster", "srcset"):
            target = attributes.get(name)
            assert target is None or target.startswith(("data:", "#")), (tag, target)
    assert "default-src 'none'" in page and "@import" not in page


def test_one_copy_of_plotly_and_every_figure_in_it(page):
    assert page.count("plotly.js (cartesian") == 1
    drawn = list(figures(page))
    assert len(drawn) >= 12
    assert {trace["type"] for figure in drawn for trace in figure["data"]} <= {"bar", "scatter", "heatmap"}


def test_bundle_vs_plotlys_own_version_and_recorded_hash():
    bundle = gzip.decompress((TEMPLATES / report.PLOTLY_JS).read_bytes())
    assert f"v{plotly.offline.get_plotlyjs_version()}".encode() in bundle[:200]
    assert hashlib.sha256(bundle).hexdigest() in (TEMPLATES / "README.md").read_text(encoding="utf-8")


def test_size_of_two_ten_partition_runs(page):
    assert len(page.encode()) < 3_000_000


def test_embedded_logs_read_back_equal(page, runs, tmp_path):
    files = embedded(page)
    assert list(files) == ["seed-case.parquet", "fixed.parquet"]
    for log, (name, data) in zip(runs, files.items(), strict=True):
        (tmp_path / name).write_bytes(data)
        again = read(tmp_path / name)
        pd.testing.assert_frame_equal(again.frame, log.frame)
        assert again.header == log.header and again.trailer == log.trailer


def test_first_screen_vs_metrics(page, runs):
    head = page[page.index("<main>") : page.index("Where did the idle time go")]
    head = unescape(re.sub(r"</?abbr.*?>", "", head))
    for log in runs:
        one = metrics(log).iloc[0]
        assert duration(one["cadence_ns"]) in head and duration(one["ideal_cadence_ns"]) in head
        assert log.labels[0] in head
    assert "none made" in head  # a simulated run proves nothing


def test_verdict_is_two_sentences_with_the_figures_of_the_log(runs):
    one = metrics(runs[0]).iloc[0]
    said = parts.verdict(explain(runs[0]))
    assert len(re.findall(r"\.(?= |$)", said)) == 2
    assert f"{one['kernel_utilisation']:.0%}" in said and duration(one["idle_ns"]) in said
    assert "slow transfer" in said and "bounce-buffer" in said and "memory pinned" in said


def test_verdict_of_a_log_without_kernels(tmp_path):
    log = handmade.log(row("SYNTHESIS", 0, 10, 0), row("PREP", 10, 12, 0, 0))
    assert "no GPU activity" in parts.verdict(explain(log))
    report.write([log], tmp_path / "r.html")
    assert "no GPU activity" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_text_from_a_log_stays_text(tmp_path):
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    log = handmade.log(
        row("H2D", 0, 10, 0, 0, bytes=10 * MS, name=evil),
        row("KERNEL", 10, 20, 0, 0, name=evil),
        row("KERNEL", 25, 40, 1, 0, name=evil, job=evil),
        scale=MS,
        labels=[evil],
        gpus=[{"gpu": 0, "device": evil}],
        host={"cpu": evil, "os": evil},
        versions={evil: evil},
        driver=evil,
        warnings=[evil],
        source={"format": evil, "files": [evil]},
        run=evil,
    )
    log = dataclasses.replace(log, cut_at=evil, warnings=(evil,))
    report.write([log, log], tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "alert(1)" in page and "<script>alert" not in page and "<img" not in page
    assert [tag for tag, _ in Tags(page).tags].count("script") == 2 + page.count('type="application/')


def test_only_whitelisted_header_fields_reach_the_page(tmp_path):
    log = handmade.log(
        row("KERNEL", 0, 10),
        row("KERNEL", 20, 30, 1),
        host={"cpu": "a cpu", "environment": "TOKEN=hunter2", "hostname": "hunter2.example.org"},
        source={"format": "nsight", "files": ["/home/hunter2/a.sqlite"], "env": {"TOKEN": "hunter2"}},
        emulation={"secret": "hunter2"},
    )
    report.write([log], tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    visible = re.sub(r'<script type="application/octet-stream".*?</script>', "", page, flags=re.DOTALL)
    assert "a.sqlite" in visible and "a cpu" in visible and "hunter2" not in visible


def test_command_vs_the_plan_of_the_header(runs):
    for log in runs:
        words = shlex.split(parts.command(log, "out.parquet"))
        assert words[:2] == ["cuzkbench", "run"] and words[-2:] == ["-o", "out.parquet"]
        typed = {field.name: field.type for field in dataclasses.fields(RunPlan)}
        knobs: dict[str, Any] = {}
        for option, value in zip(words[2:-2:2], words[3:-2:2], strict=True):
            name = option.removeprefix("--").replace("-", "_")
            knobs[name] = float(value) if "float" in typed[name] else int(value) if "int" in typed[name] else value
        assert RunPlan.named(**knobs).as_mapping() == log.header["plan"]


def test_file_names_are_distinct_and_harmless():
    logs = [
        dataclasses.replace(handmade.log(row("KERNEL", 0, 1), plan={"preset": name}), path=None)
        for name in ("a/../b", "a/../b", "-rf", "", "a b")
    ]
    names = report.file_names(logs)
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*\.parquet", name) for name in names)


def test_a_large_log_is_not_embedded_and_the_page_says_so(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(report, "EMBED_BYTES", 10)
    report.write(runs[:1], tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert embedded(page) == {} and "too large to be carried" in page


def test_no_log_and_an_unwritable_place(runs, tmp_path):
    with pytest.raises(ValueError, match="at least one log"):
        report.write([], tmp_path / "r.html")
    with pytest.raises(OSError, match="No such file"):
        report.write(runs[:1], tmp_path / "nowhere" / "r.html")
    assert list(tmp_path.iterdir()) == []


def test_in_process_outputs_vs_a_jupyter_kernel(runs, tmp_path):
    papermill = pytest.importorskip("papermill")
    runs[0].save(tmp_path / "run.parquet")
    source = TEMPLATES / "report.ipynb"
    paths = [str(tmp_path / "run.parquet")]
    kernel = papermill.execute_notebook(
        str(source), None, parameters={"paths": paths}, progress_bar=False, cwd=str(TEMPLATES.parents[1])
    )
    ours = execute(json.loads(source.read_text(encoding="utf-8")), paths=paths)

    def shown(cells: list[dict[str, Any]]) -> list[object]:
        bundles = [output["data"] for cell in cells for output in cell.get("outputs", ())]
        return [bundle.get(PLOTLY) or bundle.get("text/html") for bundle in bundles]

    expected, found = shown(kernel["cells"]), shown(ours["cells"])
    assert len(found) > 8
    for theirs, mine in zip(expected, found, strict=True):
        if isinstance(mine, dict):
            assert isinstance(theirs, dict)
            assert {key: theirs[key] for key in ("data", "layout")} == {key: mine[key] for key in ("data", "layout")}
        else:
            assert theirs == mine


def test_our_script_is_small_and_calls_nobody():
    script = (TEMPLATES / "report" / "page.js").read_text(encoding="utf-8")
    assert len(script.splitlines()) < SCRIPT_LINES
    assert not re.search(r"\b(fetch|XMLHttpRequest|WebSocket|EventSource|sendBeacon|import)\b\s*\(|https?:", script)


def test_differences_vs_plans_metrics_and_gaps(runs):
    said = unescape(parts.differences(runs).data)
    before, now = (metrics(log).iloc[0] for log in runs)
    assert "fixed differs from seed-case in memory (pinned instead of pageable)." in said
    assert f"every {duration(now['cadence_ns'])} instead of {duration(before['cadence_ns'])}" in said
    waits = gaps(runs[0]).query("cause == 'SLOW_TRANSFER'")
    slow = duration((waits["end_ns"] - waits["start_ns"]).sum())
    assert f"Waiting for a slow transfer: {duration(0)} instead of {slow}." in said
    assert parts.differences(runs[:1]).data == ""


def test_whatif_of_a_log_that_cannot_be_replayed_says_so():
    bare = handmade.log(row("KERNEL", 0, 10, -1, -1), row("KERNEL", 20, 30, -1, -1))
    assert "This log cannot say: the log has no kernels whose partition is known." in whatif(bare, "bare.parquet").data
