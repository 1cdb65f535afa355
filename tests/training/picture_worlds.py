"""A small world of images, large enough for the network of Mnih et al. (2015) and the image preset."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

__all__ = ["Quarters"]

STEPS = 4  # per episode; each is worth 1 at best
SIDE = 36
SQUARE = 12


class Quarters(gymnasium.Env[Any, Any]):
    """A coloured square lies in one quarter of a dark, noisy image; naming the quarter pays 1."""

    observation_space = spaces.Box(0, 255, (SIDE, SIDE, 3), np.uint8)
    action_space = spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._time = 0
        return self._draw(), {}

    def _draw(self) -> Any:
        self._quarter = int(self.np_random.integers(4))
        row, column = divmod(self._quarter, 2)
        top, left = SIDE // 2 * np.array([row, column]) + self.np_random.integers(SIDE // 2 - SQUARE + 1, size=2)
        picture = self.np_random.integers(0, 60, (SIDE, SIDE, 3), np.uint8)
        picture[top : top + SQUARE, left : left + SQUARE] = self.np_random.integers(150, 256, 3, np.uint8)
        return picture

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = float(action == self._quarter)
        self._time += 1
        return self._draw(), reward, self._time >= STEPS, False, {}
