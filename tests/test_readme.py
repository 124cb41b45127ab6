"""Links of every page at the top resolve, and what the README tells a reader to run exists."""

import hashlib
import re
import shlex
from pathlib import Path

import pytest
import typer

from cuzkbench.cli import app

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGES = sorted(path for path in ROOT.glob("*.md")) + sorted((ROOT / "data").rglob("*.md"))
COMMANDS = typer.main.get_command(app)


def anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_resolve(page):
    text = page.read_text()
    for target in re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'src="([^"]+)"', text):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        linked = page.parent / path if path else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked.read_text()), target


def test_every_data_file_is_named_beside_it_and_every_capture_has_its_hash():
    files = [path for path in (ROOT / "data").rglob("*") if path.is_file() and path.suffix not in (".md", ".py")]
    assert files
    for path in files:
        words = (path.parent / "README.md").read_text()
        assert path.name in words, path
        if path.suffix == ".parquet":
            assert f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}" in words, path


def test_partition_flow_links_are_in_the_order_of_architecture():
    section = README.split("## How one partition flows")[1].split("\n## ")[0]
    linked = re.findall(r"\]\(cuzkbench/([^)#]+\.py)\)", section)
    listed = re.findall(r"^\| `(\S+\.py)` \|", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)
    assert len(linked) >= 8
    assert [listed.index(module) for module in linked] == sorted(listed.index(module) for module in linked)


def test_two_commands_set_up_and_run_alone():
    commands = re.findall(r"^python3\.11 -m venv .*$", README, re.MULTILINE)
    assert [command.rpartition(" && ")[2].partition(" ")[0] for command in commands] == [
        ".venv/bin/cuzkbench",
        ".venv/bin/python",
    ]
    assert commands[0].rpartition(" && ")[0] == commands[1].rpartition(" && ")[0]


def test_every_cuzkbench_command_in_the_readme_exists_with_its_options():
    lines = [line for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) for line in block.splitlines()]
    lines += re.findall(r"`(cuzkbench [^`]+)`", README)
    seen = 0
    for line in lines:
        for part in re.split(r"&&|;|\|", line):
            words = shlex.split(part.replace("…", "x").replace("[", "").replace("]", ""))
            if not words or Path(words[0]).name != "cuzkbench":
                continue
            command = COMMANDS
            words = words[1:]
            while words and hasattr(command, "commands") and not words[0].startswith("-"):
                assert words[0] in command.commands, part
                command, words = command.commands[words[0]], words[1:]
            known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
            assert {word.partition("=")[0] for word in words if word.startswith("-")} <= known | {"--help"}, part
            seen += 1
    assert seen >= 5


def test_every_command_and_notebook_has_its_row():
    named = set(re.findall(r"^\| `cuzkbench (\w+)", README, re.MULTILINE))
    assert named == set(COMMANDS.commands)
    notebooks = set(re.findall(r"^\| \[[^\]]+\]\(notebooks/([^)]+)\)", README, re.MULTILINE))
    assert notebooks == {path.name for path in (ROOT / "notebooks").glob("*.ipynb")}
