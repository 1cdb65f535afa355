"""Runs of earlier versions resume, evaluate, plot and are listed; a run of another format is refused by its version.

If one of these tests fails, users' runs fail too. Make the code read the old run. If that is impossible, raise the
format of the folder or of the checkpoints, and expect the refusal here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import envfleet
from envfleet.errors import CheckpointError, SettingsError
from envfleet.runs.listing import runs_in
from envfleet.runs.plot import plot_runs
from tests.training.old_runs import OLD_RUNS, copy_of

STOPPED_AT, BUDGET = 64, 128


@pytest.fixture(params=OLD_RUNS)
def old_run(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return copy_of(request.param, tmp_path / "runs" / request.param)


def change(file: Path, **values: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def test_it_resumes(old_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = envfleet.resume(old_run)
    console = "".join(capsys.readouterr())
    assert f"resuming from step {STOPPED_AT}" in console
    assert "fresh episodes" not in console  # the simulators were restored too
    assert run.checkpoint().step == BUDGET
    steps = [row["step"] for row in run.metrics if "rollout/ep_rew_mean" in row]
    assert steps == sorted(steps)
    assert steps[-1] == BUDGET


def test_it_is_evaluated(old_run: Path) -> None:
    evaluation = envfleet.evaluate_run(old_run, episodes=2)
    assert (evaluation.step, evaluation.episodes, evaluation.env) == (STOPPED_AT, 2, "CartPole-v1")


def test_it_acts(old_run: Path) -> None:
    assert envfleet.Run.load(old_run, checkpoint="best").policy.act([0.0, 0.0, 0.0, 0.0]) in (0, 1)


def test_it_is_plotted(old_run: Path, tmp_path: Path) -> None:
    assert plot_runs([old_run], tmp_path / "plot.png").stat().st_size > 1_000


def test_it_is_listed(old_run: Path) -> None:
    (summary,) = runs_in(old_run.parent)
    assert (summary.env, summary.algorithm, summary.seed) == ("CartPole-v1", old_run.name, 1)
    assert (summary.steps, summary.budget, summary.state) == (STOPPED_AT, BUDGET, "stopped")


def test_a_run_of_a_later_format_is_refused(old_run: Path, caplog: pytest.LogCaptureFixture) -> None:
    change(old_run / "manifest.json", format=2, envfleet="7.0.0")
    for use in (envfleet.resume, envfleet.evaluate_run, envfleet.Run.load, lambda run: plot_runs([run], "a.png")):
        with pytest.raises(SettingsError, match=r"has format 2 \(it was made by Envfleet 7.0.0\).* reads format 1"):
            use(old_run)
    assert runs_in(old_run.parent) == []
    assert "is left out: " in caplog.text
    assert "Envfleet 7.0.0" in caplog.text


def test_a_checkpoint_of_a_later_format_is_refused(old_run: Path) -> None:
    """The later version that saved it can still resume it afterwards."""
    newest = old_run / "checkpoints" / f"step-{STOPPED_AT}"
    change(newest / "digest.json", format=2)
    for use in (envfleet.resume, envfleet.evaluate_run):
        with pytest.raises(CheckpointError, match="has format 2; this version reads format 1\nhint: use the version"):
            use(old_run)
    assert newest.is_dir()
