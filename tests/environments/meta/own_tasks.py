"""An environment with tasks as users write it, in a module that workers import without torch and pytest."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from envfleet.environments.meta import TaskSettings, Trial

BEGUN: list[float] = []  # the task of every episode in this process


class Aim(gymnasium.Env[Any, Any]):
    """Guess a number. An episode has 3 steps if the number is negative, otherwise 4."""

    observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def sample_tasks(self, n: int, generator: np.random.Generator) -> list[float]:
        return [float(task) for task in generator.uniform(-1.0, 1.0, n)]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        given = (options or {}).get("task")
        self.task, self.steps = self.sample_tasks(1, self.np_random)[0] if given is None else given, 0
        BEGUN.append(self.task)
        return np.zeros(1, np.float32), {"task": self.task}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        seen = np.array([self.steps / 4], np.float32)
        return seen, 1.0 - abs(float(action[0]) - self.task), self.steps == (3 if self.task < 0 else 4), False, {}


class Coin(Aim):
    """Has two tasks."""

    def sample_tasks(self, n: int, generator: np.random.Generator) -> list[float]:
        return [float(task) for task in generator.choice([-1.0, 1.0], n)]


def make(trials: bool = True, num_eval_tasks: int = 0) -> gymnasium.Env[Any, Any]:
    settings = TaskSettings(episodes_per_task=2, num_train_tasks=3, num_eval_tasks=num_eval_tasks)
    return Trial(Aim(), settings) if trials else Aim()


def make_coin() -> gymnasium.Env[Any, Any]:
    return Trial(Coin(), TaskSettings(episodes_per_task=2))
