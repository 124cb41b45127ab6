"""A real Chromium with the network off, and what a reader would object to on a page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (pip install playwright)")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on PATH")
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
WIDTHS = {"desk": (1440, 900), "phone": (390, 844)}

# text that leaves the page or its chart, unless it can be scrolled to
CUT = """() => [...document.querySelectorAll('main *')].filter(one => {
    const own = [...one.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
    const box = one.getBoundingClientRect(), plot = one.closest('.plot');
    if (!own || !box.width || one.closest('.barlayer, .modebar')) return false;
    const room = plot ? plot.getBoundingClientRect() : { left: 0, right: innerWidth, top: -Infinity };
    if (box.left >= room.left - 1 && box.right <= room.right + 1 && box.top >= room.top - 1) return false;
    for (let at = one; at && !plot; at = at.parentElement)
        if (/auto|scroll/.test(getComputedStyle(at).overflowX)) return false;
    return true;
}).map(one => one.textContent)"""
# texts of one chart that lie on one another
OVERLAPPING = """() => [...document.querySelectorAll('figure.chart')].flatMap(figure => {
    const chosen = '.xtick text, .ytick text, .g-gtitle text, .g-xtitle text, .legendtext, .annotation text';
    const boxes = [...figure.querySelectorAll(chosen)]
        .map(text => [text.textContent, text.getBoundingClientRect()]).filter(([, box]) => box.width);
    return boxes.flatMap(([one, a], at) => boxes.slice(at + 1).filter(([, b]) =>
        a.left < b.right - 2 && b.left < a.right - 2 && a.top < b.bottom - 3 && b.top < a.bottom - 3
    ).map(([other]) => one + ' | ' + other));
})"""
WIDER = "document.documentElement.scrollWidth - innerWidth"


@dataclass
class Seen:
    """A page and what it did."""

    page: Any
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def faults(self) -> dict[str, Any]:
        """Everything that no page may do; empty values where it does not."""
        figures = self.page.locator("figure.chart").count()
        return {
            "errors": self.errors,
            "requests": [url for url in self.requests if not url.startswith(("file:", "data:", "blob:"))],
            "not drawn": figures - self.page.locator("figure.chart[data-drawn]").count(),
            "without a plot": figures - self.page.locator("figure.chart:has(.main-svg)").count(),
            "wider than the page": max(0, self.page.evaluate(WIDER)),
            "cut": self.page.evaluate(CUT),
            "overlapping": self.page.evaluate(OVERLAPPING),
        }


@contextmanager
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as tool:
        opened = tool.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


@contextmanager
def visit(browser: Any, path: Path, size: tuple[int, int]) -> Iterator[Seen]:
    """A page in a context of its own, all its charts drawn."""
    viewport = {"width": size[0], "height": size[1]}
    context = browser.new_context(viewport=viewport, offline=True, accept_downloads=True)
    seen = Seen(context.new_page())
    seen.page.on("console", lambda message: seen.errors.append(message.text) if message.type == "error" else None)
    seen.page.on("pageerror", lambda error: seen.errors.append(str(error)))
    seen.page.on("request", lambda request: seen.requests.append(request.url))
    seen.page.goto(path.as_uri())
    seen.page.wait_for_selector("body[data-ready]", timeout=60_000)
    yield seen
    context.close()
