"""`import cuzkbench` and `--help` touch nothing heavy; every public name is there."""

import dataclasses
import inspect
import subprocess
import sys

import pytest

import cuzkbench

HEAVY = ("numpy", "pandas", "numba", "pyarrow", "plotly", "simpy", "py_arkworks_bls12381", "cupy", "rich", "IPython")


def modules_after(code: str) -> set[str]:
    printed = "import sys; print('\\n' + '\\n'.join(sys.modules))"
    run = subprocess.run([sys.executable, "-c", f"{code}\n{printed}"], capture_output=True, text=True, check=True)
    return {line.partition(".")[0] for line in run.stdout.splitlines()}


def test_import_cuzkbench_imports_nothing_heavy():
    loaded = modules_after("import cuzkbench")
    assert "cuzkbench" in loaded
    assert not loaded & set(HEAVY)


def test_help_imports_nothing_heavy_but_rich():
    loaded = modules_after(
        "from cuzkbench.cli import main\nimport sys\nsys.argv = ['cuzkbench', '--help']\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code"
    )
    assert "typer" in loaded
    assert not loaded & (set(HEAVY) - {"rich"})


@pytest.mark.parametrize("half", ["cuzkbench.prover.scheduler", "cuzkbench.device.host", "cuzkbench.timing"])
def test_prover_half_imports_no_pandas(half):
    assert "pandas" not in modules_after(f"import {half}")


@pytest.mark.parametrize("name", cuzkbench.__all__)
def test_every_public_name_is_there(name):
    assert name in dir(cuzkbench)
    assert getattr(cuzkbench, name) is not None


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing_such"):
        _ = cuzkbench.nothing_such


def test_the_help_of_a_plan_says_what_each_knob_means() -> None:
    text = inspect.getdoc(cuzkbench.RunPlan)
    assert text is not None
    for field in dataclasses.fields(cuzkbench.RunPlan):
        assert f"\n{field.name}: " in text
