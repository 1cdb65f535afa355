"""Commands that the Makefile's targets run, recorded by stand-ins for Python and the other programs."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROGRAMS = ("envfleet", "lint-imports", "mypy", "python", "ruff")
# Appends its name and arguments to `calls`, one tab-separated line per call, and does nothing else.
STAND_IN = """#!/bin/sh
{ printf '%s' "${0##*/}"; for word; do printf '\\t%s' "$word"; done; echo; } >> calls
"""
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
Make = Callable[..., list[list[str]]]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Run `make` in a temporary folder and return the recorded calls, without those of the setup."""
    for name in ("Makefile", "constraints.txt", "procgen.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "docs").mkdir()
    programs = tmp_path / "venv" / "bin"
    programs.mkdir(parents=True)
    for name in PROGRAMS:
        (programs / name).write_text(STAND_IN)
        (programs / name).chmod(0o755)

    def run(*arguments: str) -> list[list[str]]:
        command = ["make", f"VENV={tmp_path / 'venv'}", f"PYTHON={programs / 'python'}", *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        calls = [line.split("\t") for line in (tmp_path / "calls").read_text().splitlines()]
        (tmp_path / "calls").unlink()
        return [call for call in calls if not _is_set_up(call)]

    return run


def _is_set_up(call: list[str]) -> bool:
    return call[0] == "python" and (call[1] == "-c" or call[1:3] == ["-m", "pip"])


def flags_of(call: list[str]) -> dict[str, str]:
    """Return the flags of a call that have a value; fail if one is given twice."""
    pairs = [(word, value) for word, value in itertools.pairwise(call) if word.startswith("--")]
    assert len(dict(pairs)) == len(pairs), call
    return dict(pairs)


def test_train_20k_has_the_settings_of_the_older_system(make: Make) -> None:
    [call] = make("train-20k")
    assert call[:3] == ["envfleet", "train", "ppo"]
    flags = flags_of(call)
    assert flags.pop("--output-dir").startswith("training_runs/train-20k__")
    wanted = {"--env": "envfleet/GameBoy-v0", "--steps": "20000", "--n-envs": "2", "--episode-length": "750"}
    wanted |= {"--epochs": "6", "--minibatch-size": "128", "--learning-rate-schedule": "constant"}
    assert flags.items() >= wanted.items()


@pytest.mark.parametrize(("variables", "hours"), [((), "0.017"), (("DURATION=0.5",), "0.5")])
def test_compare_trains_on_one_core_and_on_all_and_compares(variables: tuple[str, ...], hours: str, make: Make) -> None:
    sequential, parallel, comparison = make("compare", "TRAIN_SEED=3", *variables)
    flags = [flags_of(call) for call in (sequential, parallel, comparison)]
    assert (sequential[:3], parallel[:3]) == (["envfleet", "train", "ppo"],) * 2
    folders = [each.pop("--output-dir") for each in flags]
    assert (flags[0].pop("--backend"), flags[1].pop("--backend")) == ("sequential", "processes")
    assert flags[0] == flags[1]  # no other difference
    assert flags[0].items() >= {"--env": "procgen/coinrun", "--duration": hours, "--seed": "3"}.items()
    assert comparison[:2] == ["envfleet", "compare"]
    assert flags[2] == {"--sequential": folders[0], "--parallel": folders[1]}
    assert {Path(folder).parent for folder in folders[:2]} == {Path(folders[2])}
    assert folders[2].startswith("training_runs/compare__")


def test_train_parallel_for_a_duration_is_coinrun(make: Make) -> None:
    [call] = make("train-parallel", "DURATION=2")
    flags = flags_of(call)
    assert flags.items() >= {"--env": "procgen/coinrun", "--duration": "2"}.items()
    assert "--steps" not in flags
    [without] = make("train-parallel")
    assert "--duration" not in flags_of(without) and flags_of(without)["--env"] == "envfleet/GameBoy-v0"


@pytest.mark.parametrize("target", ["train", "train-20k", "train-parallel", "train-pure-rl"])
def test_variables_on_the_command_line_win(target: str, make: Make) -> None:
    given = {
        "TRAIN_STEPS": "777", "TRAIN_ENVS": "5", "TRAIN_EPISODE_LENGTH": "123", "TRAIN_UPDATE_EPOCHS": "9",
        "TRAIN_BATCH_SIZE": "32", "TRAIN_OUTPUT_DIR": "elsewhere",
    }  # fmt: skip
    call = make(target, *(f"{name}={value}" for name, value in given.items()), "ARGS=--gamma 0.9")[0]
    flags = flags_of(call)
    assert flags.pop("--output-dir").startswith(f"elsewhere/{target}__")
    wanted = {"--steps": "777", "--n-envs": "5", "--episode-length": "123", "--epochs": "9", "--minibatch-size": "32"}
    assert flags.items() >= {**wanted, "--gamma": "0.9"}.items()


@pytest.mark.parametrize(
    ("arguments", "steps"),
    [
        (["train"], "20000"),  # overrides the preset
        (["train", "TRAIN_STEPS=50000"], "50000"),
        (["train-20k"], "20000"),
        (["train-parallel"], "5000"),
        (["train-parallel", "TRAIN_STEPS=777"], "777"),
        (["train-pure-rl"], "20000"),
        (["train-pure-rl", "TRAIN_STEPS=777", "TRAIN_RANDOM_STEPS=0"], "0"),
    ],
)
def test_random_play_has_the_steps_of_the_training(arguments: list[str], steps: str, make: Make) -> None:
    assert flags_of(make(*arguments)[0])["--random-steps"] == steps


def test_train_ends_with_plot_evaluation_and_video_of_the_same_run(make: Make) -> None:
    train, plot, evaluation, film = make("train")
    folder = flags_of(train)["--output-dir"]
    assert plot == ["envfleet", "plot", folder]
    assert evaluation == ["envfleet", "evaluate", folder, "--episodes", "50"]
    assert film == ["envfleet", "evaluate", folder, "--episodes", "1", "--video", f"{folder}/videos/agent.mp4"]


def test_test_runs_the_suite_in_three_processes(make: Make) -> None:
    [call] = make("test", "ARGS=-k collect -x")
    assert call[:5] == ["python", "-m", "pytest", "-n", "3"]
    assert call[-3:] == ["-k", "collect", "-x"]
    assert make("test", "TEST_PROCESSES=0")[0][3:5] == ["-n", "0"]


def test_proof_runs_what_the_suite_leaves_out_and_keeps_the_result(make: Make, tmp_path: Path) -> None:
    [call] = make("proof")
    assert call[:5] == ["python", "-m", "pytest", "-m", "proof"]
    assert (tmp_path / "docs" / "proof.txt").read_text().startswith("commit ")


def test_lint_runs_every_check(make: Make) -> None:
    assert make("lint") == [["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"], ["lint-imports"]]


def test_without_a_target_all_of_them_are_listed() -> None:
    output = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in ("setup", "train", "test", "lint", "proof", "bench"):
        assert f"  make {target} " in output
