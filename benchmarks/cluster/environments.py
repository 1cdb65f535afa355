"""Environments that wait, so that several nodes can share the cores of one machine."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

__all__ = ["WaitingCartPole", "Waits"]


class Waits(gymnasium.Env[Any, Any]):
    """Waits in every step; its observation has `size` bytes."""

    action_space = spaces.Discrete(2)

    def __init__(self, milliseconds: float = 2.0, size: int = 16) -> None:
        self._seconds, self._steps = milliseconds / 1000.0, 0
        self.observation_space = spaces.Box(-1.0, 1.0, (size // 4,), np.float32)
        self._observed = np.zeros(size // 4, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        self._observed[:] = self.np_random.uniform(-1.0, 1.0)
        return self._observed, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        time.sleep(self._seconds)
        self._steps += 1
        return self._observed, float(action), self._steps >= 100, False, {}


class WaitingCartPole(gymnasium.Wrapper[Any, Any, Any, Any]):
    """CartPole-v1 that waits a little in every step."""

    def __init__(self, milliseconds: float = 1.0) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self._seconds = milliseconds / 1000.0

    def step(self, action: Any) -> Any:
        time.sleep(self._seconds)
        return super().step(action)
