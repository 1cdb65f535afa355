"""Environments whose state is plain data, though most do not continue exactly from it."""

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
    """Random walk with a drift that each reset draws. All state is in the instance."""

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
        """Return observation and info. The mask forbids moving further out beyond -2 and 2."""
        mask = np.array([self.place > -2.0, True, self.place < 2.0], np.int8)
        return np.array([self.place, self.time], np.float32), {"action_mask": mask}

    def draw_drift(self) -> None:
        self._drift = float(self.np_random.normal())

    def drift(self) -> float:
        return self._drift


_simulators: dict[int, dict[str, float]] = {}  # stands in for the memory of a C library


class Handle(Honest):
    """Simulator behind an integer handle, as in PyBullet or ctypes bindings."""

    def __init__(self) -> None:
        self.handle = len(_simulators)
        _simulators[self.handle] = {"drift": 0.0}

    def draw_drift(self) -> None:
        _simulators[self.handle]["drift"] = float(self.np_random.normal())

    def drift(self) -> float:
        return _simulators[self.handle]["drift"]


class ClassAttribute(Honest):
    """Each reset draws a drift shared by all instances."""

    shared_drift = 0.0

    def draw_drift(self) -> None:
        type(self).shared_drift = float(self.np_random.normal())

    def drift(self) -> float:
        return type(self).shared_drift


class Clock(Honest):
    """Draws from NumPy's global generator."""

    def drift(self) -> float:
        return float(np.random.rand())  # noqa: NPY002 - the global generator, as user code often does


class RaisesWhenRestored(Honest):
    def get_state(self) -> dict[str, Any]:
        return {"time": self.time, "place": self.place, "drift": self._drift}

    def set_state(self, state: dict[str, Any]) -> None:
        raise NotImplementedError("this simulator cannot be set")


class CrashesWhenRestored(RaisesWhenRestored):
    """Crashes its process, as a stale pointer would."""

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


class CountsOutside(Honest):
    """Counts resets in a class attribute that only a reset reads; episodes never end."""

    resets = [0]

    def draw_drift(self) -> None:
        self.resets[0] += 1
        self._drift = float(self.resets[0])

    def step(self, action: Any) -> Any:
        observation, reward, _, _, info = super().step(action)
        return observation, reward, False, False, info


class Fails(Honest):
    """Raises in its second episode, which is an ordinary event with `on_error="restart"`."""

    def __init__(self) -> None:
        self.episode = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.episode += 1
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        if self.time == 3 and self.episode == 2:
            raise ValueError("the simulator blew up")
        return super().step(action)


class NoState(Honest):
    """Has a get_state() that raises; records the seeds it is given."""

    seeds: list[int] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.seeds += [] if seed is None else [seed]
        return super().reset(seed=seed, options=options)

    def get_state(self) -> Any:
        raise RuntimeError("it has no state")

    def set_state(self, state: Any) -> None:
        raise AssertionError("there is none to be set")


class Moody(RaisesWhenRestored):
    """Can be restored until the environment variable is set, as if the simulator were then updated."""

    def set_state(self, state: dict[str, Any]) -> None:
        if os.environ.get("ENVFLEET_TEST_MOOD") == "raise":
            super().set_state(state)
        if os.environ.get("ENVFLEET_TEST_MOOD") == "exit" and os.environ["ENVFLEET_TEST_PID"] != str(os.getpid()):
            os._exit(11)
        self.time, self.place, self._drift = state["time"], state["place"], state["drift"]
