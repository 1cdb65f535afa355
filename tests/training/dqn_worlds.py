"""Small worlds that show whether a part of DQN works."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import FrameStackObservation

from envfleet.capabilities import Demonstration


class Chain(gymnasium.Env[Any, Any]):
    """Ten cells in a row. Only the far end pays much, so rewards must travel far back."""

    LENGTH = 10

    def __init__(self) -> None:
        self.observation_space = spaces.Discrete(self.LENGTH)
        self.action_space = spaces.Discrete(2)
        self._at = self._time = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._at = self._time = 0
        return self._at, {}

    def step(self, action: Any) -> Any:
        self._time += 1
        self._at = min(self._at + 1, self.LENGTH - 1) if action == 1 else 0
        there = self._at == self.LENGTH - 1
        reward = 1.0 if there else (0.01 if action == 0 else 0.0)
        return self._at, reward, there, self._time >= 40, {}


class Masked(gymnasium.Env[Any, Any]):
    """The best action is the highest allowed one of six; a forbidden action costs 5."""

    def __init__(self) -> None:
        self.observation_space = spaces.MultiBinary(6)
        self.action_space = spaces.Discrete(6)
        self._allowed = np.ones(6, np.int8)
        self._time = 0

    def _draw(self) -> tuple[Any, dict[str, Any]]:
        self._allowed = (self.np_random.random(6) < 0.5).astype(np.int8)
        self._allowed[self.np_random.integers(6)] = 1
        return self._allowed.copy(), {"action_mask": self._allowed.copy()}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._time = 0
        return self._draw()

    def step(self, action: Any) -> Any:
        self._time += 1
        best = int(np.flatnonzero(self._allowed)[-1])
        reward = -5.0 if not self._allowed[int(action)] else float(action == best)
        observation, info = self._draw()
        return observation, reward, False, self._time >= 20, info


class Picture(gymnasium.Env[Any, Any]):
    """A bright square lies in one quarter of an image; naming the quarter pays 1."""

    def __init__(self, size: int = 16) -> None:
        self.observation_space = spaces.Box(0, 255, (size, size, 1), np.uint8)
        self.action_space = spaces.Discrete(4)
        self._half, self._side = size // 2, 3 * size // 16
        self._quarter = self._time = 0

    def _draw(self) -> Any:
        self._quarter = int(self.np_random.integers(4))
        picture = self.np_random.integers(0, 60, self.observation_space.shape, np.uint8)
        room = self._half - self._side
        top, left = (self._half * at + self.np_random.integers(room) for at in divmod(self._quarter, 2))
        picture[top : top + self._side, left : left + self._side] = 220
        return picture

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._time = 0
        return self._draw(), {}

    def step(self, action: Any) -> Any:
        self._time += 1
        reward = float(action == self._quarter)
        return self._draw(), reward, False, self._time >= 10, {}


def stacked_cartpole() -> gymnasium.Env[Any, Any]:
    return FrameStackObservation(gymnasium.make("CartPole-v1"), 4)


class MaskedShown(Masked):
    """Demonstrates two episodes, one of which stops before the environment ends it."""

    def demonstrations(self, seed: int) -> Any:
        for length in (20, 7):
            yield Demonstration([int(action) for action in np.random.default_rng(length).integers(6, size=length)])
