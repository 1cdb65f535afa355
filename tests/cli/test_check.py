"""`envfleet check`: the environment's module is imported in the separate process of the check."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from envfleet import cli
from envfleet.conformance import isolation

CARTPOLE = "import gymnasium\n\ndef make():\n    return gymnasium.make('CartPole-v1')\n"


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Writes a module into the current folder; the command must not import it in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    return lambda name, text: (tmp_path / f"{name}.py").write_text(text) and None


@pytest.mark.parametrize(
    ("module", "text", "finding"),
    [
        (
            "check_exits",
            "import os\nos._exit(9)",
            "importing check_exits ended its process: it exited with code 9 (in: importing)",
        ),
        (
            "check_crashes",
            "import ctypes\nctypes.string_at(0)",
            "importing check_crashes ended its process: it was ended by SIGSEGV",
        ),
        ("check_leaves", "import sys\nsys.exit(3)", "importing check_leaves raised SystemExit"),
    ],
)
def test_a_module_that_ends_its_process(
    module: str, text: str, finding: str, write: Callable[[str, str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    write(module, text)
    assert cli.main(["check", f"{module}:make", "--seconds", "600"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert f"error: {finding}" in said
    assert ("os._exit" in text) or f'{module}.py", line 2' in said  # the user's line
    assert "envfleet/importing.py" not in said
    assert module not in sys.modules


def test_a_module_that_hangs(
    write: Callable[[str, str], None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "LEAST_PATIENCE", 2.0)
    write("check_hangs", "import time\ntime.sleep(3600)")
    assert cli.main(["check", "check_hangs:make", "--seconds", "1"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "error: importing check_hangs has not returned for 2 s (in: importing)" in said
    assert 'check_hangs.py", line 2' in said


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("check_nowhere:make", "error: there is no module 'check_nowhere'\nhint: modules are looked for"),
        ("check_good:mak", "error: module 'check_good' has no 'mak'\nhint: nearest: make\n"),
        ("check_needy:make", "error: module 'check_needy' needs 'no_such_library', which is not installed\n"),
    ],
)
def test_names_that_lead_nowhere_are_one_sentence(
    name: str, message: str, write: Callable[[str, str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    write("check_good", CARTPOLE)
    write("check_needy", "import no_such_library")
    assert cli.main(["check", name]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(message)
    assert "File " not in said.err


def test_a_module_that_raises_shows_its_own_line(
    write: Callable[[str, str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    write("check_faulty", "x = 1 / 0")
    assert cli.main(["check", "check_faulty:make"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: module 'check_faulty' raised while it was imported\n")
    assert said.endswith("ZeroDivisionError: division by zero\n")
    assert said.count("File ") == 1


def test_a_factory_that_cannot_be_sent_is_still_reported(
    write: Callable[[str, str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """The command itself could send it by its name; a fleet would have to send the object."""
    locked = CARTPOLE.replace("make():", "build(lock):")
    write("check_locked", f"import functools, threading\n{locked}make = functools.partial(build, threading.Lock())\n")
    assert cli.main(["check", "check_locked:make", "--steps", "5"]) == 0
    assert "warning: the factory cannot be sent to worker processes" in capsys.readouterr().out
