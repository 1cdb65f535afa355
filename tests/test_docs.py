"""Every example in the README and in docs/ runs: Python as a script, commands as they stand, on a smaller budget.

A block whose first line is a comment with a file name (`# my_env.py`, `// settings.json`) is that file, for the others
of its page. One that begins with `# needs: NAME` runs in a virtual environment of that library, in `make proof`.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.peers.install import install, python_of
from envfleet import cli
from envfleet.cli.settings_page import settings_page

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FILE = re.compile(r"(?:#|//) ([\w.-]+\.(?:py|yaml|json))\n")
NEEDS = re.compile(r"# needs: ([\w-]+)\n")
# What takes minutes in the hands of a reader takes seconds here.
SMALLER = [
    (re.compile(r"(--steps|--total-timesteps) \d+"), r"\1 512"),
    (re.compile(r"--episodes \d+"), "--episodes 2"),
    (re.compile(r"\bsteps=[\d_]+"), "steps=512"),
    (re.compile(r"^steps: \d+", re.MULTILINE), "steps: 512"),
    (re.compile(r'"steps": \d+'), '"steps": 512'),
]


def blocks(page: Path, *kinds: str) -> list[str]:
    return re.findall(rf"```(?:{'|'.join(kinds)})\n(.*?)```", page.read_text(), re.DOTALL)


def smaller(text: str) -> str:
    for pattern, replacement in SMALLER:
        text = pattern.sub(replacement, text)
    return text


def write_files(page: Path, folder: Path) -> None:
    for block in blocks(page, "python", "yaml", "json", "jsonc"):
        if match := FILE.match(block):
            (folder / match[1]).write_text(smaller(block))


EXAMPLES = [
    pytest.param(page, code, id=f"{page.name}-{number}")
    for page in PAGES
    for number, code in enumerate(blocks(page, "python"), 1)
    if not FILE.match(code)
]
FOREIGN = [example for example in EXAMPLES if NEEDS.match(str(example.values[1]))]
EXAMPLES = [example for example in EXAMPLES if example not in FOREIGN]
COMMANDS = [pytest.param(page, id=page.name) for page in PAGES if blocks(page, "sh")]


@pytest.mark.parametrize(("page", "code"), EXAMPLES)
def test_example_runs(page: Path, code: str, tmp_path: Path) -> None:
    write_files(page, tmp_path)
    run_example(code, Path(sys.executable), tmp_path)


@pytest.mark.proof
@pytest.mark.parametrize(("page", "code"), FOREIGN)
def test_example_with_another_library_runs(page: Path, code: str, tmp_path: Path) -> None:
    """In its own virtual environment under `.venvs`, which is made where it is missing; that takes minutes."""
    needs = NEEDS.match(code)
    assert needs is not None
    absent = install(needs[1])
    assert absent is None, f"{needs[1]} cannot be installed: {absent}"
    run_example(code, python_of(needs[1]), tmp_path, seconds=600, PYTHONPATH=str(ROOT / "src"))


def run_example(code: str, python: Path, folder: Path, *, seconds: float = 100, **environment: str) -> None:
    script = folder / "example.py"
    script.write_text(smaller(code))
    done = subprocess.run(
        [str(python), str(script)],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A reader's folder, as the current one; its modules are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("page", COMMANDS)
def test_commands_run(page: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The commands of a page in their order, in this process: torch is loaded once."""
    write_files(page, folder)
    lines = [line for block in blocks(page, "sh") for line in block.splitlines() if line.strip()]
    for line in lines:
        program, *arguments = shlex.split(smaller(line), comments=True)
        assert program == "envfleet", f"{line!r} is no command of ours; other programs stand in indented blocks"
        assert cli.main(arguments) == 0, capsys.readouterr().err


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 6
    assert len(COMMANDS) >= 5


def test_every_page_is_named_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert f"docs/{page.name}" in readme


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def quoted_messages(page: Path) -> list[str]:
    """Code of more than one word in the second column of the tables, what one sees; commands are none."""
    rows = [line.split(" | ") for line in page.read_text().splitlines() if line.startswith("| ")]
    codes = [code for row in rows for code in re.findall(r"`([^`]+)`", row[1])]
    return [code for code in codes if " " in code and not code.startswith("envfleet ")]


def strings_in(module: Path) -> str:
    """Every string of the source but docstrings, one to a line; names in braces stand where f-strings put values."""
    tree = ast.parse(module.read_text())
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    strings = [node for node in ast.walk(tree) if isinstance(node, ast.Constant | ast.JoinedStr)]
    return "\n".join(ast.unparse(node) for node in strings if id(node) not in documentation)


def test_messages_that_are_quoted_are_in_the_source() -> None:
    """What stands between the dots of a message is there word for word, in one module."""
    modules = [strings_in(path) for path in (ROOT / "src").rglob("*.py")]
    messages = quoted_messages(ROOT / "docs" / "troubleshoot.md")
    assert len(messages) >= 15
    for message in messages:
        parts = [part.strip() for part in message.split("...")]
        assert any(all(part in strings for part in parts) for strings in modules), message


def test_the_page_of_settings_is_current() -> None:
    assert (ROOT / "docs" / "settings.md").read_text() == settings_page(), "run `make settings-page`"


@pytest.mark.parametrize(
    "module",
    [
        "benchmarks.tables",
        "benchmarks.dqn.page",
        "benchmarks.ppo.page",
        "benchmarks.learning.page",
        "benchmarks.soak_page",
    ],
)
def test_tables_are_made_from_the_measured_file(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module, "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
