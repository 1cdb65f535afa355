"""What the targets of the Makefile run, with the variables of whoever calls them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


def commands(*arguments: str) -> list[str]:
    """The commands of Envfleet that `make` would run."""
    told = subprocess.run(["make", "-n", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    lines = told.replace("\\\n", " ").splitlines()
    return [" ".join(line.split()) for line in lines if "/envfleet " in line]


def test_train_20k_has_the_settings_of_the_older_system() -> None:
    [command] = commands("train-20k")
    flags = "--steps 20000 --n-envs 2 --episode-length 750 --epochs 6 --minibatch-size 128"
    assert flags in command and "--env envfleet/GameBoy-v0" in command
    assert "--output-dir training_runs/train-20k__" in command


@pytest.mark.parametrize("target", ["train", "train-20k", "train-parallel", "train-pure-rl"])
def test_variables_on_the_command_line_win(target: str) -> None:
    given = {
        "TRAIN_STEPS": "777", "TRAIN_ENVS": "5", "TRAIN_EPISODE_LENGTH": "123", "TRAIN_UPDATE_EPOCHS": "9",
        "TRAIN_BATCH_SIZE": "32", "TRAIN_OUTPUT_DIR": "elsewhere",
    }  # fmt: skip
    command = commands(target, *(f"{name}={value}" for name, value in given.items()))[0]
    for flag in ("--steps 777", "--n-envs 5", "--episode-length 123", "--epochs 9", "--minibatch-size 32"):
        assert command.count(flag.split()[0] + " ") == 1 and flag in command
    assert f"--output-dir elsewhere/{target}__" in command


@pytest.mark.parametrize(
    ("arguments", "steps"),
    [
        (["train"], 20000),  # in place of the preset's
        (["train", "TRAIN_STEPS=50000"], 50000),
        (["train-20k"], 20000),
        (["train-parallel"], 5000),
        (["train-parallel", "TRAIN_STEPS=777"], 777),
        (["train-pure-rl"], 20000),
        (["train-pure-rl", "TRAIN_STEPS=777", "TRAIN_RANDOM_STEPS=0"], 0),
    ],
)
def test_random_play_has_the_steps_of_the_training(arguments: list[str], steps: int) -> None:
    words = commands(*arguments)[0].split()
    assert words.count("--random-steps") == 1 and words[words.index("--random-steps") + 1] == str(steps)


def test_train_ends_with_plot_evaluation_and_video_of_the_same_run() -> None:
    train, plot, evaluation, film = commands("train")
    folder = train.partition("--output-dir ")[2].split()[0]
    assert f"plot {folder}" in plot and f"evaluate {folder} --episodes 50" in evaluation
    assert f"--video {folder}/videos/agent.mp4" in film
