"""Environments that give their state as plain data, and do not all continue from it as they would have."""

from __future__ import annotations

import os
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

__all__ = [
    "INEXACT",
    "ClassAttribute",
    "Clock",
    "CrashesWhenRestored",
    "Handle",
    "Honest",
    "RaisesWhenRestored",
    "pendulum_of_random_mass",
]


class Honest(gymnasium.Env[Any, Any]):
    """A random walk with a drift that each reset draws; all of it is in the instance."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(3)
    time = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        self.place = 0.0
        self.draw_drift()
        return self.observe()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        self.place += float(action) - 1.0 + self.drift()
        observation, info = self.observe()
        return observation, -abs(self.place), False, self.time >= 45, info

    def observe(self) -> tuple[Any, dict[str, Any]]:
        """What is seen; the mask forbids to move further out on one side."""
        mask = np.array([self.place > -2.0, True, self.place < 2.0], np.int8)
        return np.array([self.place, self.time], np.float32), {"action_mask": mask}

    def draw_drift(self) -> None:
        self._drift = float(self.np_random.normal())

    def drift(self) -> float:
        return self._drift


_simulators: dict[int, dict[str, float]] = {}  # what a C library would keep


class Handle(Honest):
    """A simulator behind a number, as PyBullet and bindings made with ctypes have it."""

    def __init__(self) -> None:
        self.handle = len(_simulators)
        _simulators[self.handle] = {"drift": 0.0}

    def draw_drift(self) -> None:
        _simulators[self.handle]["drift"] = float(self.np_random.normal())

    def drift(self) -> float:
        return _simulators[self.handle]["drift"]


class ClassAttribute(Honest):
    """Each reset draws the drift for all instances."""

    shared_drift = 0.0

    def draw_drift(self) -> None:
        type(self).shared_drift = float(self.np_random.normal())

    def drift(self) -> float:
        return type(self).shared_drift


class Clock(Honest):
    """Draws from the generator that everybody shares."""

    def drift(self) -> float:
        return float(np.random.rand())  # noqa: NPY002 - the global one, as users do


class RaisesWhenRestored(Honest):
    def get_state(self) -> dict[str, Any]:
        return {"time": self.time, "place": self.place, "drift": self._drift}

    def set_state(self, state: dict[str, Any]) -> None:
        raise NotImplementedError("this simulator cannot be set")


class CrashesWhenRestored(RaisesWhenRestored):
    """What a stale address does to the process that uses it."""

    def set_state(self, state: dict[str, Any]) -> None:
        os._exit(11)


INEXACT = {
    "handle": (Handle, "it continues differently"),
    "class attribute": (ClassAttribute, "it continues differently"),
    "global generator": (Clock, "it continues differently"),
    "set_state raises": (RaisesWhenRestored, "this simulator cannot be set"),
    "set_state crashes": (CrashesWhenRestored, "it exited with code 11"),
}


class RandomMass(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Domain randomisation: each reset draws the masses of the MuJoCo model."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.usual: Any = env.unwrapped.model.body_mass.copy()  # type: ignore[attr-defined]

    def reset(self, **arguments: Any) -> Any:
        result = self.env.reset(**arguments)
        model: Any = self.unwrapped.model  # type: ignore[attr-defined]
        model.body_mass[:] = self.usual * self.unwrapped.np_random.uniform(0.5, 2.0)
        return result


def pendulum_of_random_mass() -> gymnasium.Env[Any, Any]:
    return RandomMass(gymnasium.make("InvertedPendulum-v5"))
