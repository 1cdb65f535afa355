"""Training that ends before its budget is spent: a score is reached, or evaluations stop improving."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envfleet import cli
from envfleet.algorithms.settings import PPO
from envfleet.errors import SettingsError
from envfleet.runs.checkpoints import Checkpoints
from envfleet.runs.listing import runs_in
from envfleet.runs.run import Run
from envfleet.training import resume
from tests.cli.conftest import train as train_by_command
from tests.training.envs import Flat
from tests.training.running import run, weights
from tests.training.test_rates import UPDATE, StopsAfter

FLAT: dict[str, Any] = {"env": Flat, "steps": 6 * UPDATE, "eval_every": 1, "eval_episodes": 1, "epochs": 1}


def last_step(run: Run) -> float:
    return run.metrics[-1]["step"] / UPDATE


def test_a_score_ends_the_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert last_step(run(tmp_path / "run", **FLAT, stop_score=3, quiet=False)) == 1
    output = capsys.readouterr().err
    assert "whichever comes first" in output and "2,304 steps, a return of 3" in output
    assert "ended     the evaluation at step 384 had a return of 3 (stop_score 3)" in output
    assert Checkpoints(tmp_path / "run" / "checkpoints").step_of("final") == UPDATE
    assert [each.state for each in runs_in(tmp_path)] == ["finished"]
    assert last_step(run(tmp_path / "higher", **{**FLAT, "steps": 2 * UPDATE}, stop_score=3.5)) == 2


def test_evaluations_that_get_no_better_end_the_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first evaluation is the best; two more are no better."""
    assert last_step(run(tmp_path / "run", **FLAT, patience=2, quiet=False)) == 3
    assert "2 evaluations in a row were no better than 3 at step 384 (patience 2)" in capsys.readouterr().err
    assert last_step(run(tmp_path / "impatient", **FLAT, patience=1, quiet=False)) == 2
    assert "ended     1 evaluation was no better than 3 at step 384 (patience 1)" in capsys.readouterr().err


@pytest.mark.parametrize("stopped_after", [1, 2, 3])
def test_a_resumed_run_ends_at_the_same_step(tmp_path: Path, stopped_after: int) -> None:
    run(tmp_path / "run", [StopsAfter(stopped_after)], **FLAT, patience=3)
    assert last_step(resume(tmp_path / "run", env=Flat, quiet=True)) == 4


def test_a_run_that_has_ended_says_so_and_goes_on_only_without_its_condition(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path / "run", **FLAT, stop_score=3)
    before = weights(tmp_path / "run")
    resume(tmp_path / "run", env=Flat, steps=7 * UPDATE)
    output = capsys.readouterr().err
    assert "it has ended at step 384: the evaluation at step 384 had a return of 3 (stop_score 3)" in output
    assert "to continue, set --stop-score or --patience to another value or none" in output
    assert weights(tmp_path / "run") == before
    assert last_step(resume(tmp_path / "run", env=Flat, stop_score=None, quiet=True)) == 6
    run(tmp_path / "whole", **FLAT)
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


@pytest.mark.parametrize(("setting", "value"), [("stop_score", 3.0), ("patience", 2)])
def test_conditions_need_evaluations(setting: str, value: Any) -> None:
    with pytest.raises(SettingsError, match=f"{setting} looks at evaluations, but eval_every is 0"):
        PPO(eval_every=0, **{setting: value})


@pytest.mark.parametrize(
    ("given", "evaluations"),
    [
        ({"steps": 1000, "patience": 5}, "5 evaluations"),
        ({"duration": 1.0, "patience": 9}, "5 evaluations"),
        ({"steps": 1000, "patience": 3, "eval_every": 400}, "2 evaluations"),
        ({"steps": 1000, "patience": 1, "eval_every": 4000}, "1 evaluation"),
        ({"steps": 1000, "patience": 4}, None),
        ({"steps": 1000, "patience": 9, "eval_every": 100}, None),
        ({"duration": 1.0, "patience": 9, "eval_every": 100}, None),
    ],
)
def test_a_patience_that_can_never_end_the_run_gets_a_notice(given: dict[str, Any], evaluations: str | None) -> None:
    notices = PPO(**given).notices()
    words = f"patience {given['patience']} cannot end this run early: it has {evaluations}, "
    assert [notice.startswith(words) and "--eval-every" in notice for notice in notices] == [True] * bool(evaluations)


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train_by_command(tmp_path / "run", "--stop-score", "1", "--eval-every", "1", "--eval-episodes", "1") == 0
    assert cli.main(["resume", str(tmp_path / "run"), "--stop-score", "none", "--steps", "640"]) == 0
    assert "resuming from step" in capsys.readouterr().err
    assert Run.load(tmp_path / "run").settings["stop_score"] is None
