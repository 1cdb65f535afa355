"""Demonstrations: each kind of breaks at each percentage, with correct actions."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from envfleet.algorithms.settings import DQN
from envfleet.capabilities import Demonstrates, Demonstration
from envfleet.environments.wildfire import WildfireEnv
from envfleet.environments.wildfire.baselines import ridge_breaks
from envfleet.errors import SettingsError
from envfleet.runs.run import Run
from envfleet.training import train


def shown(count: int | None = None, **settings: Any) -> tuple[WildfireEnv, list[Demonstration]]:
    env = WildfireEnv(grid_size=10, **settings)
    assert isinstance(env, Demonstrates)
    return env, list(itertools.islice(env.demonstrations(3), count))


def test_each_landscape_gets_each_kind_at_each_percentage() -> None:
    _, found = shown(num_landscapes=2, percentage_increment=5)
    lengths = [(demonstration.options["landscape"], len(demonstration.actions)) for demonstration in found]
    assert lengths == [(number, cells) for number in (0, 1) for cells in (5, 10, 15, 20) for _ in range(3)]
    for demonstration in found:
        assert len(set(demonstration.actions)) == len(demonstration.actions)


def test_the_largest_percentage_is_twenty() -> None:
    _, found = shown(num_landscapes=1, percentage_increment=3, memories=("random",))
    assert [demonstration.options["budget_percent"] for demonstration in found] == [3, 6, 9, 12, 15, 18]


def test_without_a_number_of_landscapes_there_is_no_end_and_no_landscape_twice() -> None:
    _, found = shown(50)
    numbers = {demonstration.options["landscape"] for demonstration in found}
    assert len(numbers) == 50


def test_kinds_are_what_they_say() -> None:
    env, found = shown(num_landscapes=1, percentage_increment=20)
    centrality, ridge, _ = found
    env.reset(options={"landscape": 0})
    assert list(ridge.actions) == ridge_breaks(env.landscape, 20).tolist()
    assert set(centrality.actions) != set(ridge.actions)
    (again, *_), (other, *_) = env.demonstrations(3), env.demonstrations(4)
    assert np.array_equal(again.actions, centrality.actions)
    assert not np.array_equal(other.actions, centrality.actions)  # other fires


def test_blocks_come_once_each() -> None:
    env, found = shown(num_landscapes=1, percentage_increment=20, block_size=2)
    for demonstration in found:
        assert len(set(demonstration.actions)) == len(demonstration.actions) == 5  # 20 % of 25 blocks
        env.reset(options=dict(demonstration.options))
        ends = [env.step(action)[2] for action in demonstration.actions]
        assert ends == [False] * 4 + [True]


def test_an_episode_may_be_asked_for_with_a_budget_of_its_own() -> None:
    env = WildfireEnv(grid_size=10, steps_per_episode=3)
    for options, steps in (({"budget_percent": 8}, 8), (None, 3)):
        _, info = env.reset(seed=0, options=options)
        ended = False
        while not ended:
            action = np.flatnonzero(info["action_mask"])[0]
            _, _, terminated, truncated, info = env.step(action)
            ended = terminated or truncated
            saved = env.get_state()
        assert env.breaks.sum() == saved["steps"] == steps


def settings(folder: Path, **changes: Any) -> DQN:
    base: dict[str, Any] = {
        "env": "envfleet/Wildfire-v0",
        "env_kwargs": {"grid_size": 8, "num_landscapes": 2, "percentage_increment": 10},
        "demonstrations": "environment",
        "pretrain_steps": 5,
        "n_envs": 2,
        "rollout_steps": 4,
        "steps": 16,
        "learning_starts": 8,
        "replay_size": 64,
        "network": "cells",
        "hidden": (4,),
        "minibatch_size": 4,
        "backend": "sequential",
        "eval_every": 0,
        "seed": 1,
        "quiet": True,
        "output_dir": str(folder),
    }
    return DQN(**{**base, **changes})


def test_a_training_begins_with_them_and_keeps_them_for_the_next(tmp_path: Path) -> None:
    first: Run = train(settings(tmp_path / "first"))
    (kept,) = (tmp_path / "demonstrations").iterdir()
    with np.load(kept) as arrays:
        assert arrays["lengths"].tolist() == [6, 6, 6, 12, 12, 12] * 2
    assert first.metrics[-1]["train/n_updates"] > 5
    written = kept.stat().st_mtime_ns
    train(settings(tmp_path / "second"))
    assert kept.stat().st_mtime_ns == written
    train(settings(tmp_path / "third", regenerate_demonstrations=True))
    assert kept.stat().st_mtime_ns != written
    train(settings(tmp_path / "fourth", seed=2))  # another seed has its own demonstrations
    assert len(list((tmp_path / "demonstrations").iterdir())) == 2
    weights = [
        (tmp_path / name / "checkpoints/final/policy.safetensors").read_bytes() for name in ("first", "second", "third")
    ]
    assert weights[0] == weights[1] == weights[2]  # stored demonstrations equal fresh ones


def test_an_environment_that_shows_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="CartPoleEnv offers none"):
        train(settings(tmp_path / "run", env="CartPole-v1", env_kwargs={}, network="mlp"))
