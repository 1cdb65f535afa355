"""The wrapper that adds the previous action and reward, and how algorithms and policies find these parts."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from envfleet.environments.meta import History, TaskSettings, Trial
from envfleet.environments.meta.bandit import Bandit
from envfleet.errors import SettingsError
from envfleet.fleet.spaces import leaves_of
from envfleet.fleet.wrapping import build_one
from envfleet.training.wrappers import environment_of, frames_stacked, history_of
from tests.fleet.continuation import assert_continues_exactly
from tests.training.test_wrappers import Film


class Odd(gymnasium.Env[Any, Any]):
    """Observes nothing but a number; actions are whatever the test says."""

    observation_space = spaces.Discrete(3)

    def __init__(self, actions: spaces.Space[Any]) -> None:
        self.action_space = actions

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return 1, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return 2, 0.5, False, False, {}


def test_a_vector_grows_by_the_action_and_the_reward() -> None:
    env, plain = History(gymnasium.make("Pendulum-v1")), gymnasium.make("Pendulum-v1")
    seen, _ = env.reset(seed=3)
    first, _ = plain.reset(seed=3)
    assert env.observation_space.contains(seen) and seen.dtype == np.float32
    assert seen.tolist() == [*first.tolist(), 0.0, 0.0]
    action = np.array([-1.5], np.float32)
    for wrapped, bare in ((env.step(action), plain.step(action)), (env.step(action), plain.step(action))):
        assert wrapped[0].tolist() == [*bare[0].tolist(), -1.5, pytest.approx(float(bare[1]), rel=1e-6)]
        assert wrapped[1:4] == bare[1:4] and env.observation_space.contains(wrapped[0])
    assert env.history_parts() == {"action": ("", 3, 4), "reward": ("", 4, 5)}


def test_bounds_of_the_action_include_the_zero_before_the_first() -> None:
    env = History(gymnasium.wrappers.RescaleAction(gymnasium.make("Pendulum-v1"), np.float32(1.0), np.float32(3.0)))
    assert (env.observation_space.low[3], env.observation_space.high[3]) == (0.0, 3.0)
    assert env.observation_space.contains(env.reset(seed=0)[0])


def test_anything_else_becomes_a_dict_and_discrete_actions_are_one_hot() -> None:
    env = History(Odd(spaces.Discrete(4, start=1)))
    seen, _ = env.reset(seed=0)
    assert env.observation_space.contains(seen) and not seen["action"].any() and not seen["reward"].any()
    seen = env.step(2)[0]
    assert env.observation_space.contains(seen)
    assert (seen["observation"], seen["action"].tolist(), seen["reward"].tolist()) == (2, [0, 1, 0, 0], [0.5])
    assert env.history_parts() == {"action": ("action", 0, 4), "reward": ("reward", 0, 1)}
    names = {leaf.name for leaf in leaves_of(env.observation_space)}
    assert names == {"action", "observation", "reward"}


def test_actions_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(SettingsError, match="cannot write an action of Sequence"):
        History(Odd(spaces.Sequence(spaces.Discrete(2))))


def test_it_continues_exactly_from_a_saved_state() -> None:
    assert_continues_exactly(lambda: History(gymnasium.make("Pendulum-v1")), before=3, after=30)


def test_frames_below_it_are_still_found() -> None:
    assert frames_stacked(build_one(environment_of(Film, ["frame-stack", "history"]), {})) == 4


def test_parts_are_found_below_wrappers_that_keep_the_observation() -> None:
    pendulum = History(gymnasium.make("Pendulum-v1"))
    assert history_of(gymnasium.wrappers.TimeLimit(pendulum, 5)) == pendulum.history_parts()
    assert history_of(gymnasium.wrappers.FlattenObservation(Odd(spaces.Discrete(2)))) is None
    assert history_of(gymnasium.wrappers.FrameStackObservation(pendulum, 2)) is None
    trial = Trial(Bandit(arms=3, pulls=4), TaskSettings(oracle=True))
    action, reward = trial.parts["action"], trial.parts["reward"]
    assert history_of(trial) == {
        "action": ("", action.start, action.stop),
        "reward": ("", reward.start, reward.stop),
    }
