"""Trials: which observations, ends and tasks an agent sees."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from envfleet.capabilities import HasTasks
from envfleet.environments.meta import TaskSettings, Trial
from envfleet.environments.meta.bandit import Bandit
from envfleet.environments.meta.locomotion import AntDir, HalfCheetahDir
from envfleet.environments.meta.point_robot import PointRobotSparse
from envfleet.environments.meta.trial import hold_out_tasks, trial_of
from envfleet.errors import ProtocolError, SettingsError
from tests.fleet.continuation import assert_continues_exactly


class Ladder(gymnasium.Env[Any, Any]):
    """Climbs by its action; an episode terminates at 3 and is truncated after 5 steps. The task is only recorded."""

    def __init__(self, action_space: spaces.Space[Any] | None = None) -> None:
        self.observation_space = spaces.Box(-100.0, 100.0, (2,), np.float32)
        self.action_space = spaces.Box(0.0, 1.0, (1,), np.float32) if action_space is None else action_space
        self.tasks: list[Any] = []  # of every reset

    def sample_tasks(self, n: int, generator: np.random.Generator) -> list[Any]:
        return [int(task) for task in generator.integers(10**9, size=n)]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.tasks.append((options or {})["task"])
        self._height, self._steps = 0.0, 0
        self._start = self.np_random.random()
        return self._see(), {"task": self.tasks[-1]}

    def step(self, action: Any) -> Any:
        self._height += float(np.asarray(action).sum())
        self._steps += 1
        return self._see(), 10.0 * self._steps, self._height >= 3, self._steps >= 5, {"height": self._height}

    def _see(self) -> Any:
        return np.array([self._start, self._height], np.float32)


def trial(k: int = 2, *, env: Any = None, **settings: Any) -> Trial:
    return Trial(Ladder() if env is None else env, TaskSettings(episodes_per_task=k, **settings))


def part(env: Trial, observation: Any, name: str) -> list[float]:
    values: list[float] = observation[env.parts[name]].tolist()
    return values


UP, STAY = np.array([1.0], np.float32), np.array([0.25], np.float32)


def test_a_trial_begins_with_a_zero_action_and_reward() -> None:
    env = trial()
    for _ in range(2):  # the second trial must not show the end of the first
        observation, info = env.reset(seed=1)
        assert part(env, observation, "action") == [0.0] and part(env, observation, "reward") == [0.0]
        assert part(env, observation, "first") == [1.0] and info["task"] == env.unwrapped.tasks[-1]
        ended = False
        while not ended:
            ended = any(env.step(UP)[2:4])


def test_what_an_observation_carries() -> None:
    env = trial()
    env.reset(seed=1)
    observation, reward, terminated, truncated, _ = env.step(STAY)
    assert part(env, observation, "state")[1] == 0.25 and part(env, observation, "action") == [0.25]
    assert (part(env, observation, "reward"), reward) == ([10.0], 10.0)
    assert part(env, observation, "first") == [0.0] and part(env, observation, "task") == []
    assert not terminated and not truncated
    assert env.observation_space.contains(observation) and env.observation_space.shape == (5,)


def test_an_inner_end_shows_the_new_episode_and_is_no_end() -> None:
    env = trial()
    first, _ = env.reset(seed=1)
    steps = [env.step(UP) for _ in range(3)]
    observation, reward, terminated, truncated, info = steps[-1]
    assert (terminated, truncated) == (False, False)
    assert info["height"] == 3.0, "the info is of the step that ended the episode"
    assert part(env, observation, "state")[1] == 0.0, "the new episode"
    assert part(env, observation, "state")[0] != part(env, first, "state")[0]
    assert part(env, observation, "first") == [1.0]
    assert (part(env, observation, "action"), part(env, observation, "reward")) == ([1.0], [30.0]), "of the old one"
    assert reward == 30.0
    assert part(env, env.step(STAY)[0], "first") == [0.0]
    assert len(set(env.unwrapped.tasks)) == 1


@pytest.mark.parametrize(("action", "steps", "ends"), [(UP, 3, (True, False)), (STAY, 5, (False, True))])
def test_a_trial_ends_as_its_last_episode_does(action: Any, steps: int, ends: tuple[bool, bool]) -> None:
    env = trial(3)
    env.reset(seed=1)
    results = [env.step(action) for _ in range(3 * steps)]
    assert not any(result[2] or result[3] for result in results[:-1])
    observation, _, *flags, info = results[-1]
    assert tuple(flags) == ends
    episode = 10.0 * sum(range(1, steps + 1))
    assert info["episode_returns"].tolist() == [episode] * 3
    assert part(env, observation, "first") == [0.0] and part(env, observation, "state")[1] == steps * float(action[0])
    with pytest.raises(ProtocolError, match="after the end of a trial"):
        env.step(action)


def test_a_discrete_action_is_one_hot() -> None:
    env = trial(env=Ladder(spaces.Discrete(3)))
    observation, _ = env.reset(seed=1)
    assert part(env, observation, "action") == [0.0, 0.0, 0.0]
    assert part(env, env.step(2)[0], "action") == [0.0, 0.0, 1.0]


def test_discrete_actions_may_start_anywhere() -> None:
    env = trial(env=Ladder(spaces.Discrete(3, start=-1)))
    env.reset(seed=1)
    seen = env.step(-1)[0]
    assert part(env, seen, "action") == [1.0, 0.0, 0.0]
    assert part(env, env.step(1)[0], "action") == [0.0, 0.0, 1.0]


class Masked(Ladder):
    """Allows only the action that is the number of steps so far, modulo 3; with the option "free", resets allow all."""

    def __init__(self) -> None:
        super().__init__(spaces.Discrete(3))
        self.options: list[Any] = []  # of every reset

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.options.append(options)
        observation, info = super().reset(seed=seed, options=options)
        return observation, info if (options or {}).get("free") else {**info, **self._mask()}

    def step(self, action: Any) -> Any:
        *rest, info = super().step(action)
        return *rest, {**info, **self._mask()}

    def _mask(self) -> dict[str, Any]:
        return {"action_mask": np.eye(3, dtype=np.int8)[self._steps % 3]}


def test_the_mask_is_that_of_the_new_episode() -> None:
    env = trial(env=Masked())
    env.reset(seed=1)
    infos = [env.step(0)[4] for _ in range(10)]  # two episodes of five steps
    masks = [info["action_mask"].tolist().index(1) for info in infos]
    assert masks == [1, 2, 0, 1, 0, 1, 2, 0, 1, 2], "0 after the fifth step; at the end of the trial 2, its own"
    env.reset(options={"free": True})
    infos = [env.step(0)[4] for _ in range(5)]
    assert "action_mask" not in infos[-1] and infos[-1]["height"] == 0.0 and "action_mask" in infos[-2]


def test_every_episode_begins_with_the_options_of_the_trial() -> None:
    env, other = trial(env=Masked()), trial(env=Masked())
    env.reset(seed=1, options={"wind": 2})
    other.reset(seed=1)
    other.set_state(env.get_state())
    for each in (env, other):
        for _ in range(5):
            each.step(0)
    env.reset()
    first, second, third = env.unwrapped.options
    assert first == second == {"wind": 2, "task": env.unwrapped.tasks[0]} == other.unwrapped.options[-1]
    assert third == {"task": env.unwrapped.tasks[-1]}, "options are of one trial"
    old = {name: value for name, value in env.get_state().items() if name != "options"}
    other.set_state(old)  # of a version that did not keep them


def test_only_an_oracle_sees_the_task() -> None:
    env = Trial(PointRobotSparse(oracle=True))
    blind = Trial(PointRobotSparse())
    observation, info = env.reset(seed=3)
    assert part(env, observation, "task") == np.float32(info["task"]).tolist()
    assert part(env, env.step(np.zeros(2))[0], "task") == np.float32(info["task"]).tolist()
    without = np.delete(observation, range(2, 4))
    assert np.array_equal(blind.reset(seed=3)[0], without), "it is the same otherwise"


# ---- tasks


def tasks_of(count: int, seed: int = 1, **settings: Any) -> list[Any]:
    env = trial(**settings)
    env.reset(seed=seed)
    for _ in range(count - 1):
        env.reset()
    return list(env.unwrapped.tasks)


def test_tasks_follow_from_the_seed_alone() -> None:
    assert tasks_of(20) == tasks_of(20) != tasks_of(20, seed=2)
    assert len(set(tasks_of(20) + tasks_of(20, seed=2))) == 40
    env = trial()
    env.reset(seed=1)
    env.step(UP)
    env.reset()
    assert env.unwrapped.tasks == tasks_of(2), "what happens in a trial does not change the next task"


def test_a_given_task_does_not_change_the_episode() -> None:
    """The same seed and task give the same episode, whether the task was drawn or given."""
    drawn, given = Trial(PointRobotSparse()), Trial(PointRobotSparse())
    observation, info = drawn.reset(seed=3)
    other, _ = given.reset(seed=3, options={"task": info["task"]})
    assert np.array_equal(observation, other)
    for _ in range(100):
        one, two = drawn.step(np.array([0.3, 1.0])), given.step(np.array([0.3, 1.0]))
        assert np.array_equal(one[0], two[0]) and one[1] == two[1]


def test_training_and_held_out_tasks_are_apart() -> None:
    assert not set(tasks_of(200)) & set(tasks_of(200, task_set="eval"))
    training = {*tasks_of(200, num_train_tasks=7), *tasks_of(200, seed=2, num_train_tasks=7)}
    held_out = {*tasks_of(200, num_eval_tasks=5, task_set="eval"), *tasks_of(200, 2, num_eval_tasks=5, task_set="eval")}
    assert len(training) == 7 and len(held_out) == 5, "the sets do not depend on the seed"
    assert not training & held_out


def test_a_fixed_set_has_distinct_tasks_in_order() -> None:
    held_out = trial(env=Dice(), num_train_tasks=2, num_eval_tasks=50, task_set="eval").held_out()
    training = {trial(env=Dice(), num_train_tasks=2).reset(seed=seed)[1]["task"] for seed in range(20)}
    assert len(held_out) == len(set(held_out)) == 6 - len(training)
    assert trial(env=Dice(), num_eval_tasks=50).held_out() == [], "of training tasks"
    assert trial(env=Dice(), task_set="eval").held_out() == [], "every trial has a new task"


class Dice(Ladder):
    """Has six tasks."""

    def sample_tasks(self, n: int, generator: np.random.Generator) -> list[Any]:
        return [int(task) for task in generator.integers(6, size=n)]


def test_held_out_tasks_are_compared_with_those_of_training() -> None:
    settings: dict[str, Any] = {"num_train_tasks": 4}
    one = trial(env=Dice(), **settings)
    other = trial(env=Dice(), task_set="eval", **settings)
    for env in (one, other):
        env.reset(seed=1)
        for _ in range(100):
            env.reset()
    assert set(other.unwrapped.tasks) == set(range(6)) - set(one.unwrapped.tasks)
    everything = trial(env=Dice(), task_set="eval", num_train_tasks=200)
    everything.reset(seed=1)  # no task is left; it does not draw for ever


def test_a_trial_can_draw_held_out_tasks() -> None:
    env = trial(num_train_tasks=3)
    env.reset(seed=1)
    assert env.hold_out()
    drawn = [env.reset(seed=1)[1]["task"], *(env.reset()[1]["task"] for _ in range(19))]
    assert drawn == tasks_of(20, num_train_tasks=3, task_set="eval")
    assert set(drawn).isdisjoint(tasks_of(100, num_train_tasks=3)) and trial().hold_out()


def test_a_trial_without_other_tasks_keeps_those_of_training() -> None:
    assert trial(env=Dice(), num_train_tasks=4).hold_out()
    for settings in ({}, {"num_train_tasks": 200}):
        env = trial(env=Dice(), **settings)
        assert not env.hold_out() and env.settings.task_set == "train"


def test_a_trial_is_found_below_other_wrappers() -> None:
    env = trial()
    assert trial_of(gymnasium.wrappers.TimeLimit(env, 7)) is env and trial_of(Ladder()) is None
    assert hold_out_tasks(env) is env and env.settings.task_set == "eval"


def test_a_finite_set_of_tasks_has_none_to_hold_out() -> None:
    assert HalfCheetahDir().generalisation() is None
    assert AntDir(directions="two").generalisation() is None
    offer = Bandit(num_train_tasks=50).generalisation()
    assert offer is not None and offer.trained == "50 training tasks" and offer.env_kwargs == {"task_set": "eval"}


def test_tasks_must_be_plain() -> None:
    class Arrays(Ladder):
        def sample_tasks(self, n: int, generator: np.random.Generator) -> list[Any]:
            return [generator.random(2) for _ in range(n)]

    with pytest.raises(SettingsError, match=r"plain values.*\n?.*tolist"):
        trial(env=Arrays(), task_set="eval").reset(seed=1)


@pytest.mark.parametrize("task", [[0.1, 0.2], [0.1, 0.2, float("nan")], "left", [0.1, 0.2, 1.5], {"p": 1}])
def test_a_wrong_task_is_refused(task: Any) -> None:
    with pytest.raises(SettingsError, match="received the task"):
        Trial(Bandit(arms=3)).reset(seed=1, options={"task": task})


def test_environments_that_cannot_have_trials() -> None:
    with pytest.raises(SettingsError, match="no tasks"):
        Trial(gymnasium.make("CartPole-v1"), TaskSettings())
    with pytest.raises(SettingsError, match=r"TaskSettings\(episodes_per_task"):
        Trial(Ladder())
    with pytest.raises(SettingsError, match="Discrete space or vectors"):
        trial(env=Ladder(spaces.MultiDiscrete([2, 2])))
    with pytest.raises(ProtocolError, match="before reset"):
        trial().step(UP)
    assert isinstance(Ladder(), HasTasks) and isinstance(Bandit(), HasTasks)


# ---- state


@pytest.mark.parametrize("steps", [0, 3, 10, 61, 119])
def test_a_state_continues_in_the_middle_of_a_trial(steps: int) -> None:
    """At the start, inside the first episode, inside the second one, and before the end."""
    assert_continues_exactly(lambda: gymnasium.make("envfleet/PointRobotSparse-v0", oracle=True), steps, 200)
    assert_continues_exactly(lambda: gymnasium.make("envfleet/TabularMDP-v0", num_train_tasks=3), steps, 200)


@pytest.mark.parametrize("name", ["PointRobotSparse", "Bandit"])
def test_without_the_past_the_observation_is_the_state(name: str) -> None:
    """For a control that cannot adapt."""
    shown, hidden = (gymnasium.make(f"envfleet/{name}-v0", show_previous=each, oracle=True) for each in (True, False))
    parts = shown.get_wrapper_attr("parts")
    kept = parts["task"].stop
    assert hidden.observation_space.shape == (kept,)
    one, other = shown.reset(seed=1)[0], hidden.reset(seed=1)[0]
    action = shown.action_space.sample()
    for _ in range(5):
        assert np.array_equal(one[:kept], other)
        one, other = shown.step(action)[0], hidden.step(action)[0]
