"""The built wheel outside of the checkout: every file that the package reads is in it, and its commands work."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUILD = "import hatchling.build, sys; print(hatchling.build.build_wheel(sys.argv[1]))"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as pip builds it (the hook of PEP 517), without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [sys.executable, "-c", BUILD, str(folder)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return folder / built.stdout.split()[-1]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def ran(installed: Path, folder: Path, *arguments: str) -> str:
    """Python with the unpacked wheel before everything else, far from the checkout."""
    env = os.environ | {"PYTHONPATH": str(installed)}
    done = subprocess.run([sys.executable, *arguments], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    files = [path for path in (ROOT / "cuzkbench").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    held = set(zipfile.ZipFile(wheel).namelist())
    wanted = {path.relative_to(ROOT).as_posix() for path in files}
    assert {Path(name).suffix for name in wanted} >= {".py", ".cu", ".cuh", ".md", ".gz", ".j2", ".ipynb", ".typed"}
    assert wanted <= held
    assert not [name for name in held if name.startswith(("tests/", "data/", "notebooks/"))]


def test_version_comes_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    where = ran(installed, tmp_path, "-c", "import cuzkbench; print(cuzkbench.__file__)")
    assert Path(where.strip()).is_relative_to(installed)
    said = ran(installed, tmp_path, "-m", "cuzkbench", "--version")
    names = [line.split()[0] for line in said.splitlines()]
    assert names[:2] == ["cuzkbench", "python"]
    assert {"numpy", "pandas", "plotly", "numba", "py-arkworks-bls12381"} <= set(names)


def test_run_explain_and_report_outside_of_the_checkout(installed: Path, tmp_path: Path) -> None:
    ran(
        installed, tmp_path, "-m", "cuzkbench", "run", "--preset", "seed-case", "--device", "model", "-o", "log.parquet"
    )
    assert "bounce-buffer" in ran(installed, tmp_path, "-m", "cuzkbench", "explain", "log.parquet")
    ran(installed, tmp_path, "-m", "cuzkbench", "report", "log.parquet", "-o", "report.html")
    assert (tmp_path / "report.html").stat().st_size > 100_000


def test_resources_outside_of_the_checkout(installed: Path, tmp_path: Path) -> None:
    """Kernel sources as the compiler gets them, and the meanings that tables show."""
    code = """
from cuzkbench.analysis.shown import _meanings
from cuzkbench.device.kernels import nvrtc
print(len(_meanings()), sorted(name for name, text in nvrtc.sources().items() if text.strip()))
"""
    count, names = ran(installed, tmp_path, "-c", code).split(" ", 1)
    assert int(count) > 50
    kernels = {path.name for path in (ROOT / "cuzkbench" / "device" / "kernels").glob("*.cu*")}
    assert kernels < set(ast.literal_eval(names)) and len(kernels) > 4
