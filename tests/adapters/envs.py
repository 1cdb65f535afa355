"""Environments for the adapters, in a module that workers import without Stable-Baselines3 or torch."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit


class Walk(gymnasium.Env[Any, Any]):
    """A random walk with dict observations, infos of many types, both kinds of episode end, and reset options."""

    observation_space = spaces.Dict({"place": spaces.Box(-100, 100, (2,), np.float32), "side": spaces.Discrete(2)})
    action_space = spaces.Discrete(3)
    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode, self.charge, self.calls = render_mode, 0.0, 0
        self.place = np.zeros(2, np.float32)

    def observe(self) -> Any:
        return {"place": self.place.copy(), "side": np.int64(self.place[0] > 0)}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = self.np_random.normal(size=2).astype(np.float32) + (options or {}).get("offset", 0)
        return self.observe(), {"began": float(self.place[0])}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place = self.place + self.np_random.normal(size=2).astype(np.float32) + (int(action) - 1)
        info = {
            "distance": float(np.abs(self.place).sum()),
            "named": {"x": self.place.copy()},
            "word": f"{action}",
        }
        if self.place[1] > 0:
            info["above"] = True
        return self.observe(), float(self.place[0]), bool(self.place[0] < -3), False, info

    def double(self, number: float) -> float:
        self.calls += 1
        return 2 * number

    def render(self) -> Any:
        return np.full((4, 6, 3), 7, np.uint8)


def make_walk() -> gymnasium.Env[Any, Any]:
    return TimeLimit(Walk(render_mode="rgb_array"), max_episode_steps=6)


class Switches(gymnasium.Env[Any, Any]):
    """Pays for every switch that is on; accepts only integers."""

    observation_space = spaces.Box(0, 1, (2,), np.float32)
    action_space = spaces.MultiBinary(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        return np.ones(2, np.float32), float(action.sum()), False, False, {}
