"""Random actions respect action masks, whoever plays them."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import envfleet
from envfleet.fleet import auto
from envfleet.fleet.random_actions import RandomAgent, RandomBatch


class OddOnly(gymnasium.Env[Any, Any]):
    """Actions 5 to 9, of which only odd ones are allowed; raises on any other."""

    observation_space = spaces.Discrete(1)
    action_space = spaces.Discrete(5, start=5)
    info: dict[str, Any] = {"action_mask": np.array([1, 0, 1, 0, 1], np.int8)}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return 0, self.info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action in (5, 7, 9)
        return 0, 0.0, False, False, self.info


def test_a_batch_takes_every_allowed_action() -> None:
    with envfleet.make(OddOnly, 3, backend="sequential", seed=0) as fleet:
        act = RandomBatch(fleet, seed=1)
        act.see(fleet.reset()[1])
        drawn = np.stack([act(None) for _ in range(50)])
        fleet.step(drawn[0])
    assert all(set(column) == {5, 7, 9} for column in drawn.T)


def test_the_cost_of_a_step_is_measured_with_allowed_actions() -> None:
    assert auto.measure(OddOnly(), seed=0, n_envs=1).seconds > 0


@pytest.mark.parametrize(
    ("space", "mask", "allowed"),
    [
        (spaces.Discrete(3, start=2), [0, 1, 1], {3, 4}),
        (spaces.MultiDiscrete([2, 2]), [0, 1, 1, 1], {(1, 0), (1, 1)}),
        (spaces.MultiBinary(2), [0, 1], {(0, 0), (0, 1)}),
        (spaces.Discrete(3), [0, 1], {0, 1, 2}),  # does not fit
    ],
)
def test_an_agent_takes_every_allowed_action(space: spaces.Space[Any], mask: list[int], allowed: set[Any]) -> None:
    agent = RandomAgent(space, seed=1)
    drawn = [np.asarray(agent(None, {"action_mask": np.array(mask, np.int8)})).tolist() for _ in range(50)]
    assert {tuple(each) if isinstance(each, list) else each for each in drawn} == allowed


def test_an_agent_leaves_the_generator_of_its_space_alone() -> None:
    space, untouched = spaces.Discrete(1000, seed=3), spaces.Discrete(1000, seed=3)
    RandomAgent(space, seed=1)(None, {})
    assert space.sample() == untouched.sample()
