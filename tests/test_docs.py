"""Every example in the README and in docs/ runs, on a smaller budget: Python as a script, commands as written.

If the first line of a block is a comment with a file name (`# my_env.py`, `// settings.json`), the block is that file
for the other examples of the page. A block that starts with `# needs: NAME` runs in a virtual environment with that
library, in `make proof`.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.peers.install import install, python_of
from envfleet import cli
from envfleet.cli.settings_page import settings_page
from envfleet.training import placement
from envfleet.training.callbacks import Callback

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FILE = re.compile(r"(?:#|//) ([\w.-]+\.(?:py|yaml|json))\n")
NEEDS = re.compile(r"# needs: ([\w-]+)\n")
# Cuts examples that take a reader minutes down to seconds.
SMALLER = [
    (re.compile(r"(--steps|--total-timesteps) \d+"), r"\1 512"),
    (re.compile(r"--(episodes|tasks) \d+"), r"--\1 2"),
    (re.compile(r"(--env envfleet/GameBoy-v0)"), r"\1 --episode-length 50"),
    (re.compile(r"\bsteps=[\d_]+"), "steps=512"),
    (re.compile(r"\bpretrain_steps=[\d_]+"), "pretrain_steps=20"),
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
LONG = {"compare.md", "gameboy.md", "meta-rl.md", "sac.md", "wildfire.md"}  # long trainings, as in their own tests
COMMANDS = [
    pytest.param(page, id=page.name, marks=[pytest.mark.proof] if page.name in LONG else [])
    for page in PAGES
    if blocks(page, "sh")
]


@pytest.mark.proof
@pytest.mark.parametrize(("page", "code"), FOREIGN)
def test_example_with_another_library_runs(page: Path, code: str, tmp_path: Path) -> None:
    """Runs in a virtual environment under `.venvs`, which is created if missing; that takes minutes."""
    needs = NEEDS.match(code)
    assert needs is not None
    absent = install(needs[1])
    assert absent is None, f"{needs[1]} cannot be installed: {absent}"
    script = tmp_path / "example.py"
    script.write_text(smaller(code))
    done = subprocess.run(
        [str(python_of(needs[1])), str(script)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make an empty folder the current one, as a reader would; its modules are unloaded afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize(("page", "code"), EXAMPLES)
@pytest.mark.filterwarnings("default")  # as for a reader
def test_example_runs(page: Path, code: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the script in this process, so that torch is loaded only once."""
    monkeypatch.setattr(placement, "usable_cores", lambda: 1)
    write_files(page, folder)
    script = folder / "example.py"
    script.write_text(smaller(code))
    runpy.run_path(str(script), run_name="__main__")


@pytest.mark.parametrize("page", COMMANDS)
def test_commands_run(
    page: Path, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs a page's commands in order, in this process and on one core, so that torch is loaded only once."""
    monkeypatch.setattr(placement, "usable_cores", lambda: 1)
    write_files(page, folder)
    lines = [line for block in blocks(page, "sh") for line in block.splitlines() if line.strip()]
    for line in lines:
        program, *arguments = shlex.split(smaller(line), comments=True)
        assert program == "envfleet", f"{line!r} is no command of ours; other programs stand in indented blocks"
        if arguments[0] == "evaluate" and not {"--episodes", "--tasks"} & set(arguments):
            arguments += ["--episodes", "2"]
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
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)", prose):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_hooks_of_a_callback_are_listed_with_their_arguments() -> None:
    hooks = {name: hook for name, hook in vars(Callback).items() if name.startswith("on_")}
    signatures = {f"{name}({', '.join(list(inspect.signature(hook).parameters)[1:])})" for name, hook in hooks.items()}
    page = (ROOT / "docs" / "train.md").read_text()
    assert set(re.findall(r"^\| `(on_\w+\(.*?\))` \|", page, re.MULTILINE)) == signatures


def test_the_page_of_settings_is_current() -> None:
    assert (ROOT / "docs" / "settings.md").read_text() == settings_page(), "run `make settings-page`"


@pytest.mark.parametrize(
    "module",
    [
        "benchmarks.tables",
        "benchmarks.asynchrony.page",
        "benchmarks.cluster.page",
        "benchmarks.dqn.page",
        "benchmarks.meta.page",
        "benchmarks.ppo.page",
        "benchmarks.sac.page",
        "benchmarks.learning.page",
        "benchmarks.soak_page",
    ],
)
def test_tables_are_made_from_the_measured_file(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert importlib.import_module(module).main(["--check"]) == 0, capsys.readouterr()
