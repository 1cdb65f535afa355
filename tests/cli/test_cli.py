"""The command line: output for users, and exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import envfleet
from envfleet import cli
from envfleet.cli import doctor
from envfleet.errors import SettingsError, TrainingError
from envfleet.training.environment import keyword_arguments, named_environment

PROJECT = Path(__file__).parents[2]

ENVIRONMENTS = """
import gymnasium, numpy as np

class Walk(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-9, 9, (1,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length=5, reward=1.0):
        self.length, self.reward = length, reward

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.taken = 0
        return self.np_random.uniform(size=1), {}

    def step(self, action):
        self.taken += 1
        return self.np_random.uniform(size=1), self.reward, self.taken >= self.length, False, {}

gymnasium.register("TestCliWalk-v0", Walk)
number = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's folder with a module of environments, as the current directory."""
    (tmp_path / "my_environments.py").write_text(ENVIRONMENTS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    yield tmp_path
    sys.modules.pop("my_environments", None)
    gymnasium = sys.modules.get("gymnasium")
    if gymnasium is not None:
        gymnasium.registry.pop("TestCliWalk-v0", None)


# ----------------------------------------------------------------------------------------------------- main


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_the_version(capsys: pytest.CaptureFixture[str], flag: str) -> None:
    assert cli.main([flag]) == 0
    assert capsys.readouterr().out == f"envfleet {envfleet.__version__}\n"


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["--help"])
    assert exit_.value.code == 0
    output = capsys.readouterr().out
    for name in ("check", "demo", "doctor", "evaluate", "resume", "runs", "train"):
        assert f"• {name} " in output


def test_without_a_command_the_commands_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main([])
    assert exit_.value.code == 2
    words = set(re.findall(r"\w+", capsys.readouterr().err))
    assert {"check", "demo", "doctor", "evaluate", "resume", "runs", "train"} <= words


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("docter", "did you mean `envfleet doctor`?"),
        ("chek", "did you mean `envfleet check`?"),
        ("trian", "did you mean `envfleet train`?"),
        ("TRAIN", "did you mean `envfleet train`?"),
        ("zzz", "--help"),
    ],
)
def test_an_unknown_command(given: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([given]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: unknown command '{given}', expected one of bench, check, compare, demo, doctor, ")
    assert hint in error


def test_an_unknown_option_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["check", "CartPole-v1", "--step", "3"])
    assert exit_.value.code == 2
    assert "--steps" in capsys.readouterr().err


def test_our_errors_come_without_a_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: doctor.Doctor) -> int:
        raise SettingsError("received 3, expected 4", hint="add one")

    monkeypatch.setattr(doctor.Doctor, "run", fail)
    assert cli.main(["doctor"]) == 2
    assert capsys.readouterr().err == "error: received 3, expected 4\nhint: add one\n"


def test_what_did_not_work_out_has_another_code_than_a_wrong_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: doctor.Doctor) -> int:
        raise TrainingError("the loss is no number")

    monkeypatch.setattr(doctor.Doctor, "run", fail)
    assert cli.main(["doctor"]) == 1
    assert capsys.readouterr().err == "error: the loss is no number\n"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError(13, "Permission denied", "/shared/runs"), "error: /shared/runs: Permission denied\n"),
        (OSError(5, "Input/output error"), "error: Input/output error\n"),
        (OSError("no space for it"), "error: no space for it\n"),
    ],
)
def test_files_that_cannot_be_used_are_reported_without_a_traceback(
    error: OSError, message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: doctor.Doctor) -> int:
        raise error

    monkeypatch.setattr(doctor.Doctor, "run", fail)
    assert cli.main(["doctor"]) == 1
    assert capsys.readouterr().err == message


def test_a_reader_that_has_gone_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)  # as `head` does when it has enough
    program = [sys.executable, "-m", "envfleet", "doctor", "--json"]
    done = subprocess.run(program, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert done.returncode == 141
    assert done.stderr == ""


def test_an_interrupt_takes_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(self: doctor.Doctor) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(doctor.Doctor, "run", interrupt)
    assert cli.main(["doctor"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_an_interrupt_with_a_note_shows_it(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(self: doctor.Doctor) -> int:
        error = KeyboardInterrupt()
        error.add_note("2 of 3 episodes were played")
        raise error

    monkeypatch.setattr(doctor.Doctor, "run", interrupt)
    assert cli.main(["doctor"]) == 130
    assert capsys.readouterr().err == "interrupted\n2 of 3 episodes were played\n"


def test_arguments_of_the_process_are_used(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["envfleet", "doctor", "--json"])
    assert cli.main() == 0
    assert json.loads(capsys.readouterr().out)["facts"]["usable_cores"] >= 1


@pytest.mark.parametrize("command", [[], ["train"], ["train", "ppo"], ["resume"], ["evaluate"], ["runs"]])
def test_the_module_runs_as_a_program_and_help_imports_nothing_heavy(command: list[str]) -> None:
    program = [sys.executable, "-X", "importtime", "-m", "envfleet", *command, "--help"]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    assert f"usage: {' '.join(['envfleet', *command])}" in done.stdout
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "envfleet.cli" in imported
    assert not imported & {"gymnasium", "numpy", "torch", "rich", "envfleet.fleet"}
    assert command[:1] != ["train"] or "typeguard" not in imported  # its help is the longest


# ---------------------------------------------------------------------------------------------------- check


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", ["my_environments:Walk", "my_environments:TestCliWalk-v0"])
def test_check_finds_environments_in_the_current_folder(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", name, "--steps", "20"]) == 0
    assert ": ok, " in capsys.readouterr().out


@pytest.mark.usefixtures("folder")
def test_check_passes_arguments_on_and_ends_with_1_on_errors(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["check", "my_environments:Walk", "--env-kwargs", "reward=text", "length=3", "--steps", "20"]
    assert cli.main(arguments) == 1
    assert "error: the reward is 'text' (a str), expected a number" in capsys.readouterr().out


@pytest.mark.usefixtures("folder")
def test_check_names_what_it_had_no_time_for_and_ends_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "my_environments:Walk", "--seconds", "0"]) == 0
    said = capsys.readouterr()
    assert "not examined, for lack of time (0 s):\n  - all but 1 of the 200 steps of random play\n" in said.out
    assert "more time: --seconds 20" in said.out
    assert said.err == ""  # progress is shown only on terminals


def test_check_of_an_unknown_id(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "CartPol-v1"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: there is no environment 'CartPol-v1'\nhint: did you mean CartPole-v1")


def test_an_id_is_left_to_gymnasium() -> None:
    assert named_environment("CartPole-v1") == "CartPole-v1"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:Walk", "there is no module 'no_such_module'"),
        ("my_environments:Wlak", "module 'my_environments' has no 'Wlak'\nhint: nearest: Walk"),
        ("my_environments:zzz", "hint: name a class or function"),
        ("my_environments:number", "my_environments:number is int, expected a class or function"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_names_that_lead_nowhere(name: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        named_environment(name)
    assert message in str(caught.value)


def test_a_module_that_needs_what_is_not_installed(folder: Path) -> None:
    (folder / "needy.py").write_text("import no_such_library")
    with pytest.raises(SettingsError, match="module 'needy' needs 'no_such_library'"):
        named_environment("needy:Walk")


def test_a_module_that_raises_shows_its_own_traceback(folder: Path) -> None:
    (folder / "faulty.py").write_text("x = 1 / 0")
    with pytest.raises(SettingsError, match="module 'faulty' raised while it was imported") as caught:
        named_environment("faulty:Walk")
    message = str(caught.value)
    assert "x = 1 / 0" in message
    assert "ZeroDivisionError" in message
    assert message.count("File ") == 1  # none of ours


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-2.5", -2.5),
        ("true", True),
        ("None", None),
        ("rgb_array", "rgb_array"),
        ("[1, 2]", [1, 2]),
        ("{'x': 1}", {"x": 1}),
        ("'1'", "1"),
        ("", ""),
        ("a=b", "a=b"),
    ],
)
def test_values_of_keyword_arguments(text: str, value: object) -> None:
    assert keyword_arguments([f"size={text}", "other=0"]) == {"size": value, "other": 0}


@pytest.mark.parametrize("pair", ["size", "=3", "2x=3", "a b=1"])
def test_keyword_arguments_that_are_none(pair: str) -> None:
    with pytest.raises(SettingsError, match="expected name=value"):
        keyword_arguments([pair])
