"""Runs with user code: files stay where the run was started, and the printed commands work."""

from __future__ import annotations

import functools
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest

import envfleet
from envfleet import cli
from envfleet.errors import SettingsError
from envfleet.training.callbacks import Callback, Moment
from tests.cli.conftest import train
from tests.training.running import small

WANDERING = """
import os, gymnasium
if {at_import}:
    os.chdir({elsewhere!r})

def make(render_mode=None):
    os.chdir({elsewhere!r})
    return gymnasium.make("CartPole-v1", render_mode=render_mode)
"""
STOPPING = """
import itertools, os, signal, gymnasium
count = itertools.count(1)

class wrap(gymnasium.Wrapper):
    def step(self, action):
        if next(count) == 100:
            os.kill(os.getpid(), signal.SIGINT)
        return super().step(action)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The user's folder, with a space in its name."""
    folder = tmp_path / "my work"
    folder.mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    yield folder
    for name in ("wandering", "stopped"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("at_import", [False, True])
@pytest.mark.parametrize("backend", ["sequential", "threads"])  # a process has its own working directory
def test_an_environment_that_changes_the_working_directory_leaves_the_run_where_it_is(
    here: Path, backend: str, at_import: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = here.parent / "elsewhere"
    (here / "wandering.py").write_text(WANDERING.format(elsewhere=str(elsewhere), at_import=at_import))
    common = ["ppo", "--env", "wandering:make", "--backend", backend, "--n-envs", "2", "--seed", "1", "--hidden", "8"]
    common += ["--rollout-steps", "32", "--eval-episodes", "1"]
    assert cli.main(["train", *common, "--steps", "128", "--output-dir", "first", "--checkpoint-dir", "kept"]) == 0
    assert " first\n" in capsys.readouterr().err  # as typed
    os.chdir(here)
    assert cli.main(["train", *common, "--steps", "64", "--init-from", "first"]) == 0
    os.chdir(here)
    assert cli.main(["resume", "first", "--trust", "--steps", "192"]) == 0
    os.chdir(here)
    assert cli.main(["evaluate", "first", "--trust", "--episodes", "1", "--video", "out.gif"]) == 0
    assert "final of first (step 192)" in capsys.readouterr().out
    assert sorted(entry.name for entry in here.iterdir() if entry.suffix != ".pyc" and entry.name != "__pycache__") == [
        "first", "kept", "out.gif", "runs", "wandering.py",
    ]  # fmt: skip
    assert (here / "kept" / "final").exists()
    assert list(elsewhere.iterdir()) == []


def test_the_printed_commands_work_as_they_are_printed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "wandering.py").write_text(WANDERING.format(elsewhere=str(here), at_import=False))
    flags = ["ppo", "--env", "wandering:make", "--backend", "sequential", "--n-envs", "2", "--rollout-steps", "32"]
    flags += ["--eval-every", "0", "--output-dir", "a run"]
    assert cli.main(["train", *flags, "--steps", "64"]) == 0
    printed = capsys.readouterr().err.partition("next:\n")[2].splitlines()
    assert printed[0].strip() == "envfleet evaluate 'a run' --trust --episodes 100"
    assert printed[1].strip() == "tensorboard --logdir 'a run/logs'"
    assert cli.main([*shlex.split(printed[0])[1:-1], "1"]) == 0  # one episode is enough here


def test_the_printed_resume_command(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "wandering.py").write_text(WANDERING.format(elsewhere=str(here), at_import=False))
    (here / "stopped.py").write_text(STOPPING)
    flags = ["ppo", "--env", "wandering:make", "--wrappers", "stopped:wrap", "--backend", "sequential", "--n-envs", "2"]
    flags += ["--rollout-steps", "32", "--eval-every", "0", "--output-dir", "a run"]
    assert cli.main(["train", *flags, "--steps", "6400"]) == 130
    command = capsys.readouterr().err.rstrip().rpartition("resume with: ")[2]
    assert command == "envfleet resume 'a run' --trust"
    assert cli.main([*shlex.split(command)[1:], "--steps", "192"]) == 0


def test_a_plain_run_needs_no_trust(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(here / "run", "--steps", "64", "--eval-every", "0") == 0
    assert cli.main(["resume", "run", "--steps", "640"]) == 0
    assert "\n  envfleet evaluate run --episodes 100\n" in capsys.readouterr().err


class Stop(Callback):
    def on_update(self, moment: Moment) -> None:
        moment.stop = True


def test_a_run_from_a_script_says_what_python_needs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = small(tmp_path / "run", env=lambda: gymnasium.make("CartPole-v1"), quiet=False)
    envfleet.train(settings, callbacks=[Stop()])
    assert f"envfleet.evaluate_run({str(tmp_path / 'run')!r}, env=...)  # from Python" in capsys.readouterr().err
    assert envfleet.evaluate_run(tmp_path / "run", env=settings.env, episodes=1).episodes == 1


def test_an_object_without_a_name_is_not_taken_for_its_class(tmp_path: Path) -> None:
    """`functools.partial` has no name that could be imported, and a run says so."""
    path = tmp_path / "run"
    settings = small(path, env=functools.partial(gymnasium.make, "CartPole-v1"))
    envfleet.train(settings, callbacks=[Stop()])
    assert envfleet.Run.load(path).settings["env"] == "functools:<partial>"
    with pytest.raises(
        SettingsError, match=r"cannot be imported by that name\nhint: .*envfleet\.resume\(path, env=\.\.\.\)"
    ):
        envfleet.resume(path, trust=True)
    with pytest.raises(SettingsError, match=r"hint: .*envfleet\.evaluate_run\(path, env=\.\.\.\)"):
        envfleet.evaluate_run(path, trust=True)
    assert envfleet.resume(path, env=settings.env, quiet=True).summary.steps == settings.steps


def test_a_wrapper_from_a_script_cannot_be_given_to_evaluate(tmp_path: Path) -> None:
    settings = small(tmp_path / "run", wrappers=[lambda env: env])
    envfleet.train(settings, callbacks=[Stop()])
    with pytest.raises(
        SettingsError, match=r"with wrappers=.*\nhint: .*envfleet\.Run\.load\(path, policy=\.\.\.\)"
    ) as error:
        envfleet.evaluate_run(tmp_path / "run", trust=True)
    assert "wrappers=..." not in str(error.value)
    assert envfleet.Run.load(tmp_path / "run").policy.act([0.0, 0.0, 0.0, 0.0]) in (0, 1)
