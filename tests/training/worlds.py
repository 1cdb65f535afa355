"""Small worlds with a known optimum; each needs one ability of a policy."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

__all__ = ["Aim", "Masked", "Nested", "RememberCue"]

STEPS = 10  # per episode in the worlds without memory; each is worth 1 at best
DELAY = 20  # steps between the cue and the question


class Masked(gymnasium.Env[Any, Any]):
    """Shows two actions, one of which pays 1. Only the mask says which: it allows that one and two others.

    A forbidden action raises, so a policy that ignored its mask would not finish an episode.
    """

    observation_space = spaces.MultiBinary(6)
    action_space = spaces.Discrete(6)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._time = 0
        return self._draw()

    def _draw(self) -> tuple[Any, dict[str, Any]]:
        self._shown = self.np_random.permutation(6)[:2]
        others = self.np_random.permutation(np.setdiff1d(np.arange(6), self._shown))[:2]
        self._right = int(self.np_random.choice(self._shown))
        mask = np.zeros(6, np.int8)
        mask[[self._right, *others]] = 1
        self._allowed = mask.copy()
        observation = np.zeros(6, np.int8)
        observation[self._shown] = 1
        return observation, {"action_mask": mask}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self._allowed[action]:
            raise ValueError(f"action {action} is forbidden now")
        reward = float(action == self._right)
        self._time += 1
        observation, info = self._draw()
        return observation, reward, self._time >= STEPS, False, info


class Aim(gymnasium.Env[Any, Any]):
    """Shows a point. The reward of an action, a point too, is 1 minus its mean distance along the axes."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._time = 0
        return self._draw(), {}

    def _draw(self) -> Any:
        self._point = self.np_random.uniform(-0.9, 0.9, 2).astype(np.float32)
        return self._point

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = 1.0 - float(np.abs(action - self._point).mean())
        self._time += 1
        return self._draw(), reward, self._time >= STEPS, False, {}


class Nested(gymnasium.Env[Any, Any]):
    """A Dict of a direction, a switch that reverses it, and noise; following the direction pays 1."""

    observation_space = spaces.Dict(
        {
            "direction": spaces.Discrete(4, start=2),
            "rest": spaces.Tuple([spaces.MultiBinary(1), spaces.Box(-1, 1, (3,), np.float64)]),
        }
    )
    action_space = spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._time = 0
        return self._draw(), {}

    def _draw(self) -> Any:
        direction, turned = int(self.np_random.integers(4)), int(self.np_random.integers(2))
        self._right = 3 - direction if turned else direction
        rest = (np.array([turned], np.int8), self.np_random.uniform(-1, 1, 3))
        return {"direction": direction + 2, "rest": rest}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = float(action == self._right)
        self._time += 1
        return self._draw(), reward, self._time >= STEPS, False, {}


class RememberCue(gymnasium.Env[Any, Any]):
    """Shows a cue once and asks 20 steps later; the action that matches the cue pays 1."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)  # the cue, and whether the question is being asked
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._time, self._cue = 0, int(self.np_random.integers(2))
        return np.array([2 * self._cue - 1, 0], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._time == DELAY:
            return np.zeros(2, np.float32), float(action == self._cue), True, False, {}
        self._time += 1
        return np.array([0, self._time == DELAY], np.float32), 0.0, False, False, {}
