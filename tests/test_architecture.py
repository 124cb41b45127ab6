"""ARCHITECTURE.md has one line for every module of the package, and every module that it names exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "ARCHITECTURE.md").read_text()


def test_every_module_has_its_line_and_every_line_its_module():
    package = ROOT / "cuzkbench"
    modules = {
        path.relative_to(package).as_posix()
        for pattern in ("*.py", "*.cu", "*.cuh")
        for path in package.rglob(pattern)
        if path.read_text().strip()
    }
    lines = re.findall(r"^\| `(\S+?\.(?:py|cuh?))` \| \S", TEXT, re.MULTILINE)
    assert len(lines) == len(set(lines))
    assert set(lines) == modules
