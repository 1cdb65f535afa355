"""Bandits, tabular MDPs and point robots: rewards, episodes, pictures, refused settings."""

from __future__ import annotations

import math

import gymnasium
import numpy as np
import pytest

import envfleet
from envfleet.environments.meta.bandit import Bandit
from envfleet.environments.meta.point_robot import PointRobot, PointRobotSparse, Wind
from envfleet.environments.meta.tabular import ACTIONS, HORIZON, STATES, TabularMDP
from envfleet.environments.meta.task_env import TaskEnv
from envfleet.errors import ProtocolError, SettingsError

TOYS: dict[str, type[TaskEnv]] = {
    "Bandit": Bandit,
    "TabularMDP": TabularMDP,
    "PointRobot": PointRobot,
    "PointRobotSparse": PointRobotSparse,
    "Wind": Wind,
}


@pytest.mark.parametrize(
    "name", [name if name == "Bandit" else pytest.param(name, marks=pytest.mark.proof) for name in TOYS]
)
def test_passes_the_check(name: str) -> None:
    report = envfleet.check(f"envfleet/{name}-v0", seconds=250)
    assert report.ok, str(report)
    assert "resume is exact" in str(report)


@pytest.mark.parametrize("name", TOYS)
def test_a_picture_for_people(name: str) -> None:
    env = gymnasium.make(f"envfleet/{name}-v0", render_mode="rgb_array")
    env.reset(seed=1)
    first = env.render()
    env.action_space.seed(1)
    env.step(env.action_space.sample())
    second = env.render()
    assert first.shape == second.shape == (404, 360, 3) and first.dtype == np.uint8
    assert not np.array_equal(first[:360], second[:360]), "the picture shows the step"
    assert not np.array_equal(second[360:], second[360:361, :1]), "the caption is written"
    assert gymnasium.make(f"envfleet/{name}-v0").render_mode is None


def test_wrong_calls_and_settings() -> None:
    with pytest.raises(ProtocolError, match="before reset"):
        PointRobot().step([0, 0])
    with pytest.raises(SettingsError, match="did you mean arms"):
        Bandit(arm=3)
    with pytest.raises(SettingsError, match="rgb_array"):
        Wind(render_mode="human")
    bad = np.ones((STATES, ACTIONS, 1 + STATES)).tolist()
    with pytest.raises(SettingsError, match="sum to 1"):
        TabularMDP().reset(options={"task": bad})


# ---- definitions


def test_the_bandit() -> None:
    env = Bandit(arms=3, pulls=200)
    env.reset(seed=1, options={"task": [0.0, 1.0, 0.7]})
    paid = {arm: [env.step(arm) for _ in range(66)] for arm in (0, 1, 2)}
    assert {step[1] for step in paid[0]} == {0.0} and {step[1] for step in paid[1]} == {1.0}
    assert np.mean([step[1] for step in paid[2]]) == pytest.approx(0.7, abs=0.15)
    assert paid[1][-1][0].tolist() == pytest.approx([132 / 200])
    last = [env.step(1) for _ in range(2)][-1]
    assert last[2:4] == (True, False), "the objective is the finite number of pulls"
    tasks = np.array(env.sample_tasks(4000, np.random.default_rng(0)))
    assert tasks.shape == (4000, 3) and tasks.mean() == pytest.approx(0.5, abs=0.02)
    assert (Bandit().arms, Bandit().horizon, Bandit().settings.to_json()["episodes_per_task"]) == (5, 10, 1)


def test_the_tabular_mdp() -> None:
    env = TabularMDP()
    task = np.zeros((STATES, ACTIONS, 1 + STATES))
    task[..., 0] = 5.0
    for state in range(STATES):
        task[state, :, 1 + (state + 3) % STATES] = 1.0  # always three states further
    observation, _ = env.reset(seed=1, options={"task": task.tolist()})
    seen, rewards = [observation], []
    for action in range(HORIZON):
        observation, reward, terminated, truncated, _ = env.step(action % ACTIONS)
        seen.append(observation)
        rewards.append(reward)
    assert [int(each[:STATES].argmax()) for each in seen] == [(3 * step) % 10 for step in range(11)]
    assert [each[STATES] for each in seen] == pytest.approx([step / 10 for step in range(11)])
    assert terminated and not truncated and env.settings.to_json()["episodes_per_task"] == 10
    assert np.mean(rewards) == pytest.approx(5.0, abs=1.0) and 0.4 < np.std(rewards) < 1.8
    drawn = np.array(env.sample_tasks(400, np.random.default_rng(0)))
    assert drawn[..., 0].mean() == pytest.approx(1.0, abs=0.02) and drawn[..., 0].std() == pytest.approx(1.0, abs=0.02)
    assert drawn[..., 1:].sum(axis=-1) == pytest.approx(1.0)
    # A flat Dirichlet of ten has the variance 0.1 · 0.9 / 11.
    assert drawn[..., 1:].var() == pytest.approx(0.09 / 11, rel=0.05)


@pytest.mark.parametrize(("name", "steps"), [("PointRobot", 60), ("PointRobotSparse", 60), ("Wind", 75)])
def test_robots_move_by_a_tenth_of_their_action_until_the_clock_ends(name: str, steps: int) -> None:
    env = TOYS[name]()
    first, _ = env.reset(seed=1, options={"task": [0.0, 0.0]})
    results = [env.step(np.array([0.5, 7.0])) for _ in range(steps)]  # beyond the bounds: clipped
    assert results[0][0] - first == pytest.approx([0.05, 0.1])
    assert [result[2] for result in results] == [False] * steps
    assert [result[3] for result in results] == [False] * (steps - 1) + [True]


def test_point_robot() -> None:
    env = PointRobot()
    starts = np.array([env.reset(seed=seed)[0] for seed in range(300)])
    tasks = np.array(env.sample_tasks(300, np.random.default_rng(0)))
    for drawn in (starts, tasks):
        assert drawn.min() < -0.9 and drawn.max() > 0.9 and np.abs(drawn).max() <= 1.0
    start, _ = env.reset(seed=1, options={"task": [0.3, -0.4]})
    assert env.step([0.0, 0.0])[1] == pytest.approx(-math.dist(start, (0.3, -0.4)))


def test_point_robot_sparse() -> None:
    env = PointRobotSparse()
    starts = np.array([env.reset(seed=seed)[0] for seed in range(300)])
    assert starts.min(axis=0) == pytest.approx([-1.5, -0.5], abs=0.05)
    assert starts.max(axis=0) == pytest.approx([1.5, 1.5], abs=0.05)
    tasks = np.array(env.sample_tasks(300, np.random.default_rng(0)))
    assert np.linalg.norm(tasks, axis=1) == pytest.approx(1.0) and (tasks[:, 1] >= 0).all()
    start, _ = env.reset(seed=1, options={"task": [0.0, 1.0]})
    for away, reward in ((0.199, 1.0), (0.201, 0.0)):
        env.reset(seed=1, options={"task": [float(start[0]) + away, float(start[1])]})
        _, received, _, _, info = env.step([0.0, 0.0])
        assert (received, info["is_success"]) == (reward, bool(reward))
    assert env.step([-1.0, 0.0])[4]["is_success"] is False


def test_success_lasts_until_the_end_of_the_episode() -> None:
    env = PointRobotSparse()
    start, _ = env.reset(seed=1, options={"task": [0.0, 1.0]})
    env.reset(seed=1, options={"task": [float(start[0]) + 0.15, float(start[1])]})
    steps = [env.step([1.0, 0.0]) for _ in range(5)]
    assert [step[1] for step in steps] == [1.0, 1.0, 1.0, 0.0, 0.0]
    assert all(step[4]["is_success"] for step in steps)


def test_wind() -> None:
    env = Wind()
    first, _ = env.reset(seed=5, options={"task": [0.05, -0.08]})
    assert first.tolist() == [0.0, 0.0]
    assert env.step([0.0, 0.0])[0] == pytest.approx([0.05, -0.08])
    tasks = np.array(env.sample_tasks(1000, np.random.default_rng(0)))
    assert tasks.min() == pytest.approx(-0.08, abs=0.001) and tasks.max() == pytest.approx(0.08, abs=0.001)
    for away, reward in ((0.029, 1.0), (0.031, 0.0)):
        env.reset(options={"task": [away, 1.0]})
        assert env.step([0.0, 0.0])[1] == reward
    assert env.settings.to_json()["episodes_per_task"] == 1
