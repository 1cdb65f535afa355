"""Bandits, tabular MDPs and point robots: rewards, episodes, pictures, refused settings, and their optima."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

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


# ---- optima: recomputed, and reached in the environments by those who know how


@functools.cache
def bandit_value(arms: tuple[tuple[int, int], ...], left: int) -> float:
    """The Bayes-optimal return of a bandit with uniform chances; `arms` are sorted (paid, not paid)."""
    return 0.0 if left == 0 else max(pull_value(arms, arm, left) for arm in dict.fromkeys(arms))


def pull_value(arms: tuple[tuple[int, int], ...], arm: tuple[int, int], left: int) -> float:
    """The same if an arm with this record is pulled now."""
    paid, unpaid = arm
    others = list(arms)
    others.remove(arm)
    chance = (paid + 1) / (paid + unpaid + 2)
    better = bandit_value(tuple(sorted([*others, (paid + 1, unpaid)])), left - 1)
    worse = bandit_value(tuple(sorted([*others, (paid, unpaid + 1)])), left - 1)
    return chance * (1 + better) + (1 - chance) * worse


@pytest.mark.parametrize(("arms", "pulls", "best"), [(2, 10, 6.0218), (5, 10, 6.6600), (3, 20, 13.4658)])
def test_the_optimum_of_a_bandit(arms: int, pulls: int, best: float) -> None:
    assert bandit_value(((0, 0),) * arms, pulls) == pytest.approx(best, abs=5e-5)


def returns(env: TaskEnv, act: Callable[..., Any], trials: int, episodes: int = 1) -> Any:
    """Returns [trial, episode] of an agent that sees the environment."""
    found = np.zeros((trials, episodes))
    for trial in range(trials):
        env.reset(seed=trial)
        task = env.task
        for episode in range(episodes):
            observation, _ = env.reset(options={"task": task})
            memory: dict[str, Any] = {"episode": episode}
            ended = False
            while not ended:
                observation, reward, terminated, truncated, _ = env.step(act(env, observation, memory))
                memory["reward"] = reward
                found[trial, episode] += reward
                ended = terminated or truncated
    return found


def best_arm(env: Any, observation: Any, memory: dict[str, Any]) -> int:
    records: list[tuple[int, int]] = memory.setdefault("records", [(0, 0)] * env.arms)
    if "reward" in memory:
        paid, unpaid = records[memory["arm"]]
        records[memory["arm"]] = (paid + 1, unpaid) if memory["reward"] else (paid, unpaid + 1)
    left = env.horizon - sum(map(sum, records))
    values = {record: pull_value(tuple(sorted(records)), record, left) for record in set(records)}
    memory["arm"] = records.index(max(values, key=lambda record: values[record]))
    return int(memory["arm"])


def test_the_optimum_is_reached_in_the_environment() -> None:
    env = Bandit()
    chance = np.random.default_rng(1)
    assert returns(env, best_arm, 2000).mean() == pytest.approx(6.660, abs=0.1)
    assert returns(env, lambda *_: chance.integers(5), 2000).mean() == pytest.approx(5.0, abs=0.1)


def test_random_and_informed_returns_of_tabular_mdps() -> None:
    """Ten episodes: 100 at random (100.1 in the paper of RL²), 218 if the task is known."""
    env = TabularMDP()
    tasks = np.array(env.sample_tasks(400, np.random.default_rng(0)))
    means, chances = tasks[..., 0], tasks[..., 1:]
    best, at_random = np.zeros((400, STATES)), np.zeros((400, STATES))
    for _ in range(HORIZON):
        best = (means + np.einsum("tsan,tn->tsa", chances, best)).max(axis=-1)
        at_random = (means + np.einsum("tsan,tn->tsa", chances, at_random)).mean(axis=-1)
    assert 10 * at_random[:, 0].mean() == pytest.approx(99.8, abs=2.0)
    assert 10 * best[:, 0].mean() == pytest.approx(218.3, abs=2.0)
    chance = np.random.default_rng(1)
    played = returns(env, lambda *_: chance.integers(ACTIONS), 100, episodes=10)
    assert played.sum(axis=1).mean() == pytest.approx(10 * at_random[:, 0].mean(), abs=5.0)


def towards(env: Any, observation: Any, goal: Any) -> Any:
    """The action that moves straight to the goal."""
    move = (np.array(goal) - env._at - np.array(env._drift())) / 0.1
    return move / max(1.0, np.abs(move).max())


def straight(env: Any, observation: Any, memory: dict[str, Any]) -> Any:
    return towards(env, observation, env.goal)


ARC = np.linspace(0.0, np.pi, 40)


def sweep(env: Any, observation: Any, memory: dict[str, Any]) -> Any:
    """Follow the half circle at radius 0.9 until a reward comes, stay there, and go there in the second episode."""
    if memory["episode"] or memory.get("reward"):
        return towards(env, observation, env.goal)
    if "arc" not in memory:
        memory["arc"] = list(ARC if observation[0] > 0 else ARC[::-1])
    arc = memory["arc"]
    while len(arc) > 1 and math.dist(observation, 0.9 * np.array([math.cos(arc[0]), math.sin(arc[0])])) < 0.1:
        arc.pop(0)
    return towards(env, observation, 0.9 * np.array([math.cos(arc[0]), math.sin(arc[0])]))


def test_known_returns_of_robots() -> None:
    """The published oracles get 103.3 per trial of PointRobotSparse, and 63.7 in Wind."""
    sparse = PointRobotSparse()
    assert returns(sparse, straight, 400, episodes=2).sum(axis=1).mean() == pytest.approx(103.3, abs=0.7)
    swept = returns(sparse, sweep, 400, episodes=2).mean(axis=0)
    assert swept == pytest.approx([42.4, 51.6], abs=2.0)
    assert returns(Wind(), straight, 400).mean() == pytest.approx(62.2, abs=0.7)
