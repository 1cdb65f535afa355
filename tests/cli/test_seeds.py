"""`envfleet train --seeds`: one run per seed, in turn, and a table at the end."""

from __future__ import annotations

import signal
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from envfleet import cli
from envfleet.cli import seeds
from envfleet.runs.folder import RunFolder
from envfleet.runs.metrics import read_metrics
from envfleet.runs.run import Run
from tests.cli.conftest import SMALL
from tests.runs.making import make_run
from tests.training.running import weights

COMMAND = ["train", "ppo", *[word for word in SMALL if word not in ("--seed", "1")], "--rollout-steps", "32"]
COMMAND += ["--hidden", "8", "--epochs", "1", "--eval-episodes", "1", "--steps", "256"]


def last_evaluation(folder: Path) -> float:
    return [row["eval/mean_reward"] for row in read_metrics(folder / "metrics.jsonl") if "eval/mean_reward" in row][-1]


def test_each_seed_has_a_run_of_its_own_and_the_table_has_their_mean(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*COMMAND, "--output-dir", str(tmp_path / "run"), "--seeds", "3", "1"]) == 0
    output = capsys.readouterr()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run-seed1", "run-seed3"]
    assert "run 1 of 2: seed 3\n" in output.err and "run 2 of 2: seed 1\n" in output.err
    returns = [last_evaluation(tmp_path / f"run-seed{seed}") for seed in (3, 1)]
    rows = output.out.strip().splitlines()
    assert rows[0].split() == ["seed", "return", "run"]
    for row, seed, value in zip(rows[1:], (3, 1), returns, strict=False):
        assert row.split() == [str(seed), f"{value:.2f}", str(tmp_path / f"run-seed{seed}")]
    mean = f"mean {fmean(returns):.2f} ± {stdev(returns):.2f} (standard deviation between seeds; last evaluation)"
    assert rows[-1] == mean

    assert cli.main([*COMMAND, "--output-dir", str(tmp_path / "alone"), "--seed", "1", "--quiet"]) == 0
    assert weights(tmp_path / "alone") == weights(tmp_path / "run-seed1") != weights(tmp_path / "run-seed3")


def test_without_evaluations_the_last_episodes_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--eval-every", "0", "--output-dir", str(tmp_path / "run"), "--seeds", "1"]
    assert cli.main([*COMMAND, *flags]) == 0
    figure = read_metrics(tmp_path / "run-seed1" / "metrics.jsonl")[-1]["rollout/ep_rew_mean"]
    output = capsys.readouterr().out.strip().splitlines()
    assert output[1].split()[:2] == ["1", f"{figure:.2f}"]
    assert output[-1] == f"mean {figure:.2f} (last 100 episodes)"


def test_a_run_in_which_no_episode_ended_has_no_return(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = ["--eval-every", "0", "--n-envs", "4", "--rollout-steps", "2", "--minibatch-size", "8", "--steps", "8"]
    assert cli.main([*COMMAND, *short, "--output-dir", str(tmp_path / "run"), "--seeds", "1"]) == 0
    assert capsys.readouterr().out.strip().splitlines()[1].split()[:2] == ["1", "-"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--seeds", "1", "2", "--seed", "3"], "--seed and --seeds were both given, expected one of them"),
        (["--seeds"], "--seeds has no value"),
        (["--seeds", "1", "x"], "--seeds: got 'x', expected whole numbers from 0"),
        (["--seeds", "-1"], "--seeds: got '-1', expected whole numbers from 0"),
        (["--seeds", "1", "2", "1"], "--seeds has 1 twice"),
    ],
)
def test_what_cannot_be_is_refused(flags: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*COMMAND, *flags]) == 2
    assert message in capsys.readouterr().err


def test_a_folder_that_is_taken_is_refused_before_the_first_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run-seed2").mkdir()
    (tmp_path / "run-seed2" / "notes").touch()
    assert cli.main([*COMMAND, "--output-dir", str(tmp_path / "run"), "--seeds", "1", "2"]) == 2
    assert "run-seed2 exists and is not empty; none of the 2 runs was started" in capsys.readouterr().err
    assert cli.main([*COMMAND, "--output-dir", str(tmp_path / "run"), "--seeds", "1", "2", "--overwrite"]) == 2
    assert "run-seed2 is not a run, so --overwrite leaves it alone; none of the 2" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["run-seed2"]


@pytest.mark.parametrize("named", [False, True])
def test_a_checkpoint_folder_that_is_taken_is_refused_before_the_first_run(
    tmp_path: Path, named: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    RunFolder.create("other", env="E", algorithm="ppo", seed=1, checkpoint_dir="states-seed2")
    flags = ["--checkpoint-dir", "states", "--seeds", "1", "2", *(["--output-dir", "run"] if named else [])]
    assert cli.main([*COMMAND, *flags]) == 2
    error = capsys.readouterr().err
    assert f"states-seed2 belongs to the run {tmp_path / 'other'}; none of the 2 runs was started\n" in error
    assert "hint: give another --checkpoint-dir\n" in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "states-seed2"]


def test_small_returns_keep_their_digits(tmp_path: Path) -> None:
    runs = [Run.load(make_run(tmp_path / f"{value}", returns=(value,))) for value in (0.004, 0.006)]
    table = seeds._table([1, 2], runs)
    assert [row.split()[1] for row in table.splitlines()[2:4]] == ["0.00400", "0.00600"]
    assert "mean 0.00500 ± 0.00141 (standard deviation between seeds; last 100 episodes)" in table


def test_ctrl_c_ends_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from envfleet.training.loop import Training

    def interrupted(self: Any) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Training, "_save_if_due", interrupted)
    assert cli.main([*COMMAND, "--output-dir", str(tmp_path / "run"), "--seeds", "1", "2", "3"]) == 130
    output = capsys.readouterr()
    assert "not started: seed 2, 3\n" in output.err and output.out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["run-seed1"]
