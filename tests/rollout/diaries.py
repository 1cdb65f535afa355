"""Environments that observe their own number, episode and step, in a module that workers import quickly."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Diary(gymnasium.Env[Any, Any]):
    """Observes (env number, episode, step), so that a misplaced row shows; the reward is the step number."""

    observation_space = spaces.Box(0, 1e6, (3,), np.float64)
    action_space = spaces.Discrete(5)

    def __init__(self, number: int, lengths: tuple[int, ...], *, terminates: bool = True) -> None:
        self.number, self.lengths, self.terminates = number, lengths, terminates
        self.episode, self.time = -1, 0

    def observe(self) -> Any:
        return np.array([self.number, self.episode, self.time], np.float64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode += 1
        self.time = 0
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        ended = self.time >= self.lengths[self.episode % len(self.lengths)]
        return self.observe(), float(self.time), ended and self.terminates, ended and not self.terminates, {}


class NestedDiary(Diary):
    """The same in a nested Dict with a Tuple and a Text."""

    observation_space = spaces.Dict(
        {
            "place": spaces.Tuple([spaces.Discrete(10), spaces.Box(0, 1e6, (2,), np.float64)]),
            "note": spaces.Text(20),
        }
    )
    action_space = spaces.Dict({"go": spaces.Discrete(3), "push": spaces.Box(-1, 1, (2,), np.float32)})

    def observe(self) -> Any:
        place = (np.int64(self.number), np.array([self.episode, self.time], np.float64))
        return {"place": place, "note": f"step {self.time}"}


class Tasked(Diary):
    """Reports its task in the info of each reset."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return super().reset(seed=seed)[0], {"task": (options or {}).get("task")}


class Fragile(Diary):
    """Fails once, at step 4 of the first episode of environment 0: raises or kills its process."""

    def __init__(self, number: int, lengths: tuple[int, ...], *, memory: Path, kills: bool) -> None:
        super().__init__(number, lengths)
        self.memory, self.kills = memory, kills

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.number == 0 and self.time == 3 and not self.memory.exists():
            self.memory.touch()
            if self.kills:
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("lost on purpose")
        return super().step(action)


class Masked(Diary):
    """Allows exactly one action, a different one at every step."""

    def mask(self) -> dict[str, Any]:
        return {"action_mask": (np.arange(5) == (self.number + self.time) % 5).astype(np.int8)}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, _ = super().reset(seed=seed)
        return observation, self.mask()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action == (self.number + self.time) % 5, "an action that the mask forbids"
        return *super().step(action)[:4], self.mask()


class MaskedAtFirst(Diary):
    """Allows only action 0 at the first step and gives no mask afterwards."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return super().reset(seed=seed)[0], {"action_mask": np.eye(5, dtype=np.int8)[0]}
