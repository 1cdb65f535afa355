"""Environments whose observations say where they come from, so that a misplaced row shows."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from tests.hanging import hang

Array = np.ndarray[Any, Any]
ACTIONS: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(4, start=1),
    "multi_discrete": spaces.MultiDiscrete([2, 3]),
    "multi_binary": spaces.MultiBinary(3),
    "box": spaces.Box(-1.0, 1.0, (2,), np.float32),
}


@dataclass(frozen=True)
class Page:
    """One expected step of a counter: observation, reward, flags and next observation."""

    observation: tuple[int, int, int]  # seed, episode, step
    reward: float
    terminated: bool
    truncated: bool
    final: tuple[int, int, int]  # the observation after the step, before any reset


def length_of(seed: int, episode: int) -> int:
    """Return the episode's length, 2 to 10 steps, different in every environment."""
    return 2 + (seed * 7 + episode * 3) % 9


def diary(seed: int, steps: int) -> list[Page]:
    """Return the expected steps of the counter with this seed; actions change nothing."""
    pages, episode, step = [], 0, 0
    for _ in range(steps):
        ended = step + 1 >= length_of(seed, episode)
        terminates = (seed + episode) % 2 == 0
        reward = float(1000 * seed + 10 * episode + step + 1)
        here, there = (seed, episode, step), (seed, episode, step + 1)
        pages.append(Page(here, reward, ended and terminates, ended and not terminates, there))
        episode, step = (episode + 1, 0) if ended else (episode, step + 1)
    return pages


@dataclass(frozen=True)
class Fault:
    """Something that fails once, in the environment with `seed`, at `step` counted over all its episodes."""

    kind: str  # kill, hang or raise
    seed: int
    step: int
    marker: str  # a path that must not exist yet; for a hang, the mark of `limits_hold` followed by "-once"

    def strike(self) -> None:
        try:
            os.close(os.open(self.marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        if self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.kind == "hang":
            hang(Path(self.marker.removesuffix("-once")))
        raise RuntimeError("the simulator has failed")


class Counter(gymnasium.Env[Any, Any]):
    """Observes (seed, episode, step); episodes alternate between terminated and truncated."""

    observation_space: spaces.Space[Any] = spaces.Box(0, 1e6, (3,), np.float32)

    def __init__(self, actions: str = "discrete", fault: Fault | None = None) -> None:
        self.action_space = ACTIONS[actions]
        self.fault = fault
        self.seed, self.episode, self.time, self.life = 0, -1, 0, 0

    def observe(self) -> Any:
        return np.array([self.seed, self.episode, self.time], np.float32)

    def current_info(self) -> dict[str, Any]:
        return {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.seed, self.episode = seed % 1000, -1
        self.episode += 1
        self.time = 0
        return self.observe(), self.current_info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self.action_space.contains(action):
            raise ValueError(f"received {action!r}, expected one of {self.action_space}")
        if self.fault is not None and (self.seed, self.life) == (self.fault.seed, self.fault.step):
            self.fault.strike()
        self.life += 1
        self.time += 1
        ended = self.time >= length_of(self.seed, self.episode)
        terminates = (self.seed + self.episode) % 2 == 0
        reward = float(1000 * self.seed + 10 * self.episode + self.time)
        return self.observe(), reward, ended and terminates, ended and not terminates, self.current_info()


class NestedCounter(Counter):
    """The same in a nested Dict with a Tuple."""

    observation_space = spaces.Dict(
        {
            "place": spaces.Tuple([spaces.Discrete(1000), spaces.Box(0, 1e6, (1,), np.float64)]),
            "bits": spaces.MultiBinary(4),
        }
    )

    def observe(self) -> Any:
        bits = np.array([self.time >> bit & 1 for bit in range(4)], np.int8)
        return {"place": (self.seed, np.array([self.episode], np.float64)), "bits": bits}


def mask_of(seed: int, episode: int, step: int, size: int) -> Array:
    """Return which actions are allowed at a step; at least one is."""
    allowed = np.array([(seed + episode + step * 3 + action) % 3 != 0 for action in range(size)])
    return allowed if allowed.any() else ~allowed


class MaskedCounter(Counter):
    """Allows only some actions and raises on the others."""

    mask_size = 4

    def current_info(self) -> dict[str, Any]:
        return {"action_mask": mask_of(self.seed, self.episode, self.time, self.mask_size).astype(np.int8)}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not mask_of(self.seed, self.episode, self.time, self.mask_size)[int(action) - 1]:
            raise ValueError(f"action {action} is forbidden now")
        return super().step(action)


class GivenMask(gymnasium.Env[Any, Any]):
    """Has two actions and gives the same mask at every step, whether it fits or not."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, mask: Any, *, at_end: bool = False) -> None:
        self._mask, self._at_end = mask, at_end

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(1, np.float32), {} if self._at_end else {"action_mask": self._mask}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(1, np.float32), float(action), False, self._at_end, {"action_mask": self._mask}


class LateMaskedCounter(Counter):
    """Gives no mask at a reset; allows only the last action in the second step of an episode."""

    def current_info(self) -> dict[str, Any]:
        return {"action_mask": np.array([0, 0, 0, 1], np.int8)} if self.time == 1 else {}


def faulty_counter(kind: str, seed: int, step: int, marker: str) -> Counter:
    """Return a counter that fails once, described by plain values as settings are."""
    return Counter(fault=Fault(kind, seed, step, marker))
