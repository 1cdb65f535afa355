"""Environments of the SAC benchmark. They need only Gymnasium and NumPy, and none sleeps."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from benchmarks.computing import ComputingEnv
from benchmarks.ppo.environments import EPISODE_STEPS, SCALING_ITERATIONS


class ComputedControl(ComputingEnv):
    """Observations and actions like HalfCheetah's, with a chosen number of iterations per step."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (17,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (6,), np.float32)
    episode_steps = EPISODE_STEPS

    def __init__(self, iterations: int = SCALING_ITERATIONS) -> None:
        self.iterations = iterations

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return super().step(np.int64(action[0] > 0.0))

    def observation(self, state: int) -> Any:
        return np.full(17, (state >> 8 & 255) / 256, np.float32)


class RandomTrials(gymnasium.Env[Any, Any]):
    """Random observations and rewards, in trials of a fixed length."""

    def __init__(self, observation: int, action: int, length: int) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (observation,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (action,), np.float32)
        self._length, self._steps = length, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        return self._seen(), float(self.np_random.random()), False, self._steps == self._length, {}

    def _seen(self) -> Any:
        return self.np_random.standard_normal(self.observation_space.shape, np.float32)
