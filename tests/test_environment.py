"""pyproject.toml, environment.yml and requirements.lock state the same needs, and the code imports no others."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BASE = PROJECT["dependencies"]
EXTRAS = PROJECT["optional-dependencies"]
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text())
LOCK = (ROOT / "requirements.lock").read_text()
# the distribution of an import name, where they differ
DISTRIBUTIONS = {
    "cupy": "cupy-cuda13x",
    "importlinter": "import-linter",
    "py_arkworks_bls12381": "py-arkworks-bls12381",
    "py_ecc": "py-ecc",
    "pynvml": "nvidia-ml-py",
    "websocket": "websocket-client",
    "yaml": "pyyaml",
}


def named(requirements: list[str]) -> dict[str, Requirement]:
    return {canonicalize_name(Requirement(text).name): Requirement(text) for text in requirements}


def imported(folder: str) -> set[str]:
    names = set()
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names.add(str(node.module).partition(".")[0])
    ours = {"cuzkbench", "tests", "__future__"}
    return {canonicalize_name(DISTRIBUTIONS.get(name, name)) for name in names - ours - set(sys.stdlib_module_names)}


def test_environment_yml_states_the_needs_of_pyproject():
    (pip,) = (entry["pip"] for entry in CONDA["dependencies"] if isinstance(entry, dict))
    conda = [entry for entry in CONDA["dependencies"] if isinstance(entry, str)]
    assert f"python{PROJECT['requires-python']}" in conda
    assert pip[-1] == "--no-deps -e ."
    stated = named([entry for entry in conda if not entry.startswith("python>")] + pip[:-1])
    stated.pop("pip")
    wanted = named(BASE + [text for extra in EXTRAS.values() for text in extra])
    assert {name: str(need) for name, need in stated.items()} == {name: str(need) for name, need in wanted.items()}


@pytest.mark.parametrize("name", [name for extra, texts in EXTRAS.items() if extra != "gpu" for name in named(texts)])
def test_lock_pins_every_extra_but_gpu(name):
    assert re.search(rf"^{re.escape(name)}==", LOCK, re.MULTILINE)


@pytest.mark.parametrize("name", named(BASE))
def test_lock_satisfies_pyproject(name):
    pins = re.findall(rf"^{re.escape(name)}==([^\s;]+)", LOCK, re.MULTILINE)
    assert pins
    assert all(named(BASE)[name].specifier.contains(pin) for pin in pins)


def test_lock_has_a_hash_for_every_pin_and_no_address():
    pins = re.findall(r"^\S+==.*?(?=^\S|\Z)", LOCK, re.MULTILINE | re.DOTALL)
    assert len(pins) > 50
    assert all("--hash=sha256:" in pin for pin in pins)
    assert not re.search(r"://|--index|--find-links|file:|/work|/opt", LOCK)


def test_package_imports_only_what_it_declares():
    assert imported("cuzkbench") <= named(BASE).keys() | named(EXTRAS["gpu"]).keys() | named(EXTRAS["cluster"]).keys()


def test_tests_import_only_what_is_declared():
    declared = named(BASE).keys() | {name for extra in EXTRAS.values() for name in named(extra)}
    assert imported("tests") <= declared
