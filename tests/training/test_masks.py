"""Masks in all of Gymnasium's forms are respected by training, evaluation and random play."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import envfleet
from envfleet.runs.evaluation import random_play
from tests.training.running import SMALL, run


class OneAllowed(gymnasium.Env[Any, Any]):
    """Raises if the action is forbidden by its mask."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self.action_space: spaces.Space[Any] = {
            "discrete": spaces.Discrete(4),
            "row": spaces.MultiDiscrete([3, 2]),
            "tuple": spaces.MultiDiscrete([3, 2]),
            "switches": spaces.MultiBinary(3),
        }[kind]

    def _info(self) -> dict[str, Any]:
        masks: dict[str, Any] = {
            "discrete": np.array([0, 0, 1, 0], np.int8),
            "row": np.array([0, 1, 0, 1, 0], np.int8),
            "tuple": (np.array([0, 1, 0], np.int8), np.array([1, 0], np.int8)),
            "switches": np.array([0, 1, 0], np.int8),
        }
        return {"action_mask": masks[self._kind]}

    def _allows(self, action: Any) -> bool:
        if self._kind == "discrete":
            return int(action) == 2
        if self._kind == "switches":
            return not action[0] and not action[2]
        return np.asarray(action).tolist() == [1, 0]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._time = 0
        return np.zeros(2, np.float32), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self._allows(action):
            raise ValueError(f"{action} is forbidden")
        self._time += 1
        return np.zeros(2, np.float32), 1.0, False, self._time == 5, self._info()


KINDS = pytest.mark.parametrize("kind", ["discrete", "row", "tuple", "switches"])


@KINDS
@pytest.mark.parametrize("acting", ["worker", "central"])
def test_training_and_evaluation_keep_to_the_mask(kind: str, acting: str, tmp_path: Path) -> None:
    options = {"steps": SMALL["n_envs"] * SMALL["rollout_steps"], "acting": acting, "eval_every": 1, "eval_episodes": 2}
    done = run(tmp_path / "run", env=lambda: OneAllowed(kind), **options)
    assert done.metrics[-1]["eval/mean_reward"] == 5.0


@KINDS
def test_random_play_keeps_to_the_mask(kind: str) -> None:
    returns, steps = random_play(lambda: OneAllowed(kind), steps=50, seed=3)
    assert (returns, steps) == ([5.0] * 10, 50)


@KINDS
def test_the_check_finds_them_in_order(kind: str) -> None:
    assert envfleet.check(lambda: OneAllowed(kind)).problems == ()
