"""The layer rule of pyproject.toml holds, and is a rule that can be broken."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINT = Path(sys.executable).with_name("lint-imports")


def test_layers_vs_import_linter():
    run = subprocess.run([LINT, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout
    assert "0 broken" in run.stdout


def test_layer_rule_catches_a_prover_that_reads_frames(tmp_path):
    package = tmp_path / "copy" / "cuzkbench"
    package.parent.mkdir()
    for source in (ROOT / "cuzkbench").rglob("*.py"):
        target = package / source.relative_to(ROOT / "cuzkbench")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(source.read_text())
    (package / "prover" / "lock.py").write_text("import pandas\n")
    (package.parent / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    run = subprocess.run([LINT, "--no-cache"], cwd=package.parent, capture_output=True, text=True)
    assert run.returncode == 1, run.stdout
    assert "cuzkbench.prover.lock -> pandas" in run.stdout
