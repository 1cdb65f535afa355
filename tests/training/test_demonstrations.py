"""Demonstrations: files that come back, the margin by its formula, and an agent that needs nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import envfleet
from envfleet.algorithms.settings import DQN
from envfleet.errors import SettingsError
from envfleet.rollout.collect import collect
from envfleet.rollout.demonstrations import as_rollout, load_demonstrations, save_demonstrations
from envfleet.training import resume, train
from tests.training.dqn_worlds import Chain
from tests.training.running import weights

SPACE = spaces.Discrete(Chain.LENGTH)


def ahead(observations: Any) -> Any:
    """Always forward: the best one can do in the chain."""
    return np.ones(len(observations), np.int64)


@pytest.fixture(scope="module")
def trajectories() -> Any:
    fleet = envfleet.make(Chain, 2, backend="sequential", seed=0)
    try:
        return collect(fleet, ahead, steps=50).trajectories
    finally:
        fleet.close()


def test_a_file_gives_back_what_was_saved(tmp_path: Path, trajectories: Any) -> None:
    save_demonstrations(tmp_path / "shown.npz", trajectories, SPACE)
    loaded = load_demonstrations(tmp_path / "shown.npz", SPACE)
    assert len(loaded) == len(trajectories)
    for found, expected in zip(loaded, trajectories, strict=True):
        assert np.array_equal(found.observations, expected.observations)
        assert np.array_equal(found.rewards, expected.rewards) and found.terminated == expected.terminated


def test_as_a_rollout_each_step_leads_where_it_led(trajectories: Any) -> None:
    rollout = as_rollout(trajectories, SPACE)
    assert rollout.ended.sum() == len(trajectories)
    assert rollout.rewards.sum() == pytest.approx(sum(trajectory.rewards.sum() for trajectory in trajectories))
    time, _, k = rollout.final_rows()
    cut = [trajectory for trajectory in trajectories if not trajectory.terminated]
    assert [int(rollout.finals[""][i, 0]) for i in k] == [int(trajectory.observations[-1]) for trajectory in cut]
    assert len(time) == len(cut)


@pytest.mark.parametrize("content", [b"", b"not a zip", None])
def test_a_file_that_is_none_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "shown.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingsError, match="cannot be read"):
        load_demonstrations(path, SPACE)


def test_a_file_of_another_environment_is_refused(tmp_path: Path, trajectories: Any) -> None:
    save_demonstrations(tmp_path / "shown.npz", trajectories, SPACE)
    with pytest.raises(SettingsError, match=r"expected \(3,\)"):
        load_demonstrations(tmp_path / "shown.npz", spaces.Box(0, 1, (3,)))


def settings(folder: Path, **changes: Any) -> DQN:
    base: dict[str, Any] = {
        "env": Chain,
        "n_envs": 4,
        "rollout_steps": 8,
        "steps": 128,
        "learning_starts": 64,
        "demonstrations": ahead,
        "demonstration_steps": 200,
        "pretrain_steps": 300,
        "margin": 0.5,
        "seed": 2,
        "backend": "sequential",
        "quiet": True,
        "output_dir": str(folder),
    }
    return DQN(**{**base, **changes})


def test_what_was_shown_is_enough(tmp_path: Path) -> None:
    """Every evaluation episode goes straight to the end, after 300 updates from 200 steps shown; chance is 1 in 512."""
    run = train(settings(tmp_path / "run"))
    scores = [row["eval/mean_reward"] for row in run.metrics if "eval/mean_reward" in row]
    assert scores[0] == pytest.approx(1.0)


def test_they_come_back_with_the_checkpoint(tmp_path: Path) -> None:
    # Exploration follows the share of the budget, so both have the same one and one of them is stopped half way.
    changes = {"checkpoint_every": 32, "eval_every": 0, "steps": 256}
    train(settings(tmp_path / "whole", **changes))
    train(settings(tmp_path / "half", **changes, num_episodes=5))
    resume(tmp_path / "half", num_episodes=None, quiet=True, env=Chain, demonstrations=ahead)
    assert weights(tmp_path / "half") == weights(tmp_path / "whole")


def test_without_demonstrations_there_is_nothing_to_learn_first() -> None:
    with pytest.raises(SettingsError, match="need demonstrations"):
        DQN(pretrain_steps=10)
