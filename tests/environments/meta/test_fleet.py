"""Trials in a fleet: the same bytes on every backend, given tasks, and states in the middle of a trial."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

import envfleet
from envfleet.environments import REGISTERED
from tests.fleet.backends import BACKENDS, same, trace
from tests.fleet.continuation import is_plain

SPARSE = "envfleet/PointRobotSparse-v0"


@pytest.mark.parametrize("name", ["threads", "spawn", pytest.param("forkserver", marks=pytest.mark.proof), "fork"])
def test_every_backend_gives_the_same_bytes(name: str) -> None:
    """Over more than one trial, so that environments draw their next tasks."""
    traces = []
    for backend in (BACKENDS["sequential"], BACKENDS[name]):
        with envfleet.make("envfleet/TabularMDP-v0", 5, seed=3, group_size=2, **backend) as fleet:
            traces.append(trace(fleet, 210, seed=3))
    assert same(*traces)
    starts = [step[-1]["task"] for step in traces[0] if "task" in step[-1]]
    assert len(starts) == 3 and len({task.tobytes() for tasks in starts for task in tasks}) == 15


def test_given_tasks_stay_through_trials() -> None:
    goals = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]
    with envfleet.make(SPARSE, 3, backend="sequential", seed=1, autoreset="same_step") as fleet:
        assert fleet.reset(tasks=goals)[1]["task"].tolist() == goals
        infos = [fleet.step(fleet.action_space.sample())[4] for _ in range(240)]
        assert [info["task"].tolist() for info in infos if "task" in info] == [goals] * 2
        assert fleet.unwrapped.get_attr("task") == tuple(goals)


def test_a_task_sampler_of_the_fleet_wins_over_the_own_tasks() -> None:
    with envfleet.make("envfleet/HalfCheetahVel-v0", 2, backend="sequential", seed=1, tasks=_speed) as fleet:
        first = fleet.reset()[1]["task"]
        assert np.all((first >= 7) & (first < 8)) and first[0] != first[1]


def _speed(generator: np.random.Generator) -> float:
    return 7.0 + float(generator.random())


@pytest.mark.parametrize("env", [SPARSE, "envfleet/Bandit-v0", "envfleet/AntDir-v0"])
def test_a_state_continues_in_the_middle_of_a_trial_on_another_backend(env: str) -> None:
    tasks = {"episodes_per_task": 2, "num_train_tasks": 4}
    settings: dict[str, Any] = {"group_size": 2, "seed": 9, "env_kwargs": tasks}
    one = envfleet.make(env, 3, backend="threads", workers=2, **settings)
    one.reset()
    one.action_space.seed(4)
    actions = [one.action_space.sample() for _ in range(180)]
    for batch in actions[:75]:  # inside the second episode of the robots
        one.step(batch)
    saved = one.state()
    assert is_plain(saved)
    expected = [one.step(batch) for batch in actions[75:]]
    one.close()
    other = envfleet.make(env, 3, backend="sequential", **settings)
    other.restore(saved)
    received = [other.step(batch) for batch in actions[75:]]
    other.close()
    assert same(expected, received)


def test_ids_of_pomdp_baselines_are_accepted() -> None:
    assert REGISTERED["AntDir-v0"] == REGISTERED["envfleet/AntDir-v0"]
    assert REGISTERED["CheetahDir-v0"] == REGISTERED["envfleet/HalfCheetahDir-v0"]
    for env_id in ("CheetahDir-v0", "PointRobotSparse-v0"):
        env = gymnasium.make(env_id, episodes_per_task=3)
        env.reset(seed=1)
        assert env.unwrapped.settings.episodes_per_task == 3
        assert gymnasium.make(env.spec).unwrapped.settings.episodes_per_task == 3, "it can be made from its spec"
