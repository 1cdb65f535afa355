"""An environment whose step is a fixed number of iterations in Python.

This file needs only Gymnasium and NumPy, so other libraries' virtual environments can import it. The number of
iterations is not adapted to the clock: a slower machine takes longer, in every library.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np


class ComputingEnv(gymnasium.Env[Any, np.int64]):
    """Computes `iterations` of a linear congruential generator per step; a subclass draws the observation."""

    iterations: int
    episode_steps: int

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._state, self._steps = int(self.np_random.integers(2**31)), 0
        return self.observation(self._state), {}

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        state = self._state + int(action)
        for _ in range(self.iterations):
            state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        self._state, self._steps = state, self._steps + 1
        return self.observation(state), float(state & 1), False, self._steps >= self.episode_steps, {}

    def observation(self, state: int) -> Any:
        raise NotImplementedError
