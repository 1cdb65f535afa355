"""An environment that waits, for workers of different speed. It models a simulator that runs somewhere else."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

SEED = 1  # of the runs: environment i has the seed SEED + i


class Waits(gymnasium.Env[Any, Any]):
    """Waits in every step, from number `slow_from` on `ratio` times as long. An observation has `size` bytes."""

    action_space = spaces.Discrete(2)

    def __init__(self, milliseconds: float = 1.0, ratio: float = 1.0, slow_from: int = 0, size: int = 16) -> None:
        self.observation_space = spaces.Box(-1.0, 1.0, (size // 4,), np.float32)
        self._seconds, self._ratio, self._slow_from = milliseconds / 1000.0, ratio, slow_from
        self._waits = self._seconds
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self._waits = self._seconds * (self._ratio if seed - SEED >= self._slow_from else 1.0)
        self._steps = 0
        return self._observed(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._waits:  # even `sleep(0)` gives up the core for some 60 µs
            time.sleep(self._waits)
        self._steps += 1
        return self._observed(), float(action), self._steps >= 100, False, {}

    def _observed(self) -> Any:
        return np.full(self.observation_space.shape, self.np_random.uniform(-1.0, 1.0), np.float32)
