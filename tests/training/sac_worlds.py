"""Small worlds for SAC, in a module that worker processes can import without pytest and torch."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

Array = np.ndarray[Any, Any]


class RememberNumber(gymnasium.Env[Array, Array]):
    """The first observation shows a number, 1 or -1. The action of the last of four steps should be 0.8 times it.

    An agent without memory does best with the action 0: a return of -0.64.
    """

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    steps = 4

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self.number, self.step_number = float(self.np_random.choice([-1.0, 1.0])), 0
        return np.array([self.number, 0.0], np.float32), {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self.step_number += 1
        over = self.step_number == self.steps
        reward = -float((action[0] - 0.8 * self.number) ** 2) if over else 0.0
        return np.array([0.0, self.step_number / self.steps], np.float32), reward, over, False, {}

    def get_state(self) -> dict[str, Any]:
        return {"number": self.number, "step_number": self.step_number, "generator": self.np_random.bit_generator.state}

    def set_state(self, state: dict[str, Any]) -> None:
        self.number, self.step_number = state["number"], state["step_number"]
        self.np_random.bit_generator.state = state["generator"]
