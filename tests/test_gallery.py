"""The gallery of this checkout, notebooks executed: every page drawn, quiet, offline and whole at both widths."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cuzkbench.gallery import Page, build
from tests.chromium import WIDTHS, chromium, needs_chromium, visit

pytestmark = [needs_chromium, pytest.mark.gallery]
ROOT = Path(__file__).parents[1]
QUIET = {"errors": [], "requests": [], "not drawn": 0, "without a plot": 0, "wider than the page": 0, "cut": []}
QUIET |= {"overlapping": []}


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Page]]:
    out = tmp_path_factory.mktemp("gallery")
    return out, build(ROOT, out)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as opened:
        yield opened


def test_every_notebook_and_sample_has_a_page_that_the_index_leads_to(gallery, browser):
    out, pages = gallery
    assert {page.file for page in pages} == {path.name for path in out.iterdir()}
    assert {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")} <= {Path(page.file).stem for page in pages}
    with visit(browser, out / "index.html", WIDTHS["desk"]) as seen:
        links = seen.page.eval_on_selector_all("main p > a", "all => all.map(one => one.getAttribute('href'))")
    assert links == [page.file for page in pages[1:]]


@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_is_quiet_drawn_and_whole(gallery, browser, width):
    out, pages = gallery
    for page in pages:
        with visit(browser, out / page.file, WIDTHS[width]) as seen:
            assert {page.file: seen.faults()} == {page.file: QUIET}
            assert page.file == "index.html" or seen.page.locator("figure.chart").count()


def test_links_lead_to_pages_of_the_gallery(gallery):
    out, pages = gallery
    for page in pages:
        for target in re.findall(r'<a href="([^"#]+)"', (out / page.file).read_text(encoding="utf-8")):
            assert target.startswith(("https://", "data:")) or (out / target).exists(), (page.file, target)


def test_no_checkout_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="no notebooks"):
        build(tmp_path, tmp_path / "out")
