"""Training in environments whose observations and rewards are slightly wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from envfleet.errors import ObservationError
from envfleet.training import resume
from tests.training.envs import Draws, Outside
from tests.training.running import run, weights

KINDS = ("right", "double", "list")


def test_they_learn_the_same_as_if_all_were_right(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    learned = []
    for kind in KINDS:
        run(tmp_path / kind, env=Draws, env_kwargs={"kind": kind}, quiet=False, eval_every=12 * 32, eval_episodes=2)
        learned.append(weights(tmp_path / kind))
    assert learned[0] == learned[1] == learned[2]
    assert caplog.text.count("as the reward") == 2  # one per run that has them, none for evaluations


def test_off_is_off_in_evaluations_too(tmp_path: Path) -> None:
    changes = {"env": Outside, "env_kwargs": {"kind": "right"}, "eval_every": 12 * 32, "eval_episodes": 2}
    with pytest.raises(ObservationError, match="outside"):
        run(tmp_path / "checked", **changes)
    run(tmp_path / "unchecked", validate="off", **changes)
    assert "eval/mean_reward" in (tmp_path / "unchecked" / "metrics.jsonl").read_text()


def test_strict_ends_the_run_and_a_resumed_run_may_change_it(tmp_path: Path) -> None:
    with pytest.raises(ObservationError, match="received dtype float64"):
        run(tmp_path / "refused", env=Draws, env_kwargs={"kind": "double"}, validate="strict")
    run(tmp_path / "run", env=Draws, env_kwargs={"kind": "double"})
    with pytest.raises(ObservationError, match="received dtype float64"):
        resume(tmp_path / "run", env=Draws, validate="strict", steps=12 * 32 * 4, quiet=True)
