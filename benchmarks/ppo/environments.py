"""Environments with a fixed amount of computation per step, for the training benchmarks.

This file needs only Gymnasium and NumPy, so other libraries' virtual environments can import it. No environment
sleeps: a step is a fixed number of iterations in Python, not adapted to the clock.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

IMAGE_ITERATIONS = 450  # with the image about 50 µs on one 2.4 GHz EPYC core
SCALING_ITERATIONS = 1_000  # about 100 µs
EPISODE_STEPS = 200
FIRST_STEP_FILE = "ENVFLEET_BENCHMARK_FIRST_STEP"  # names the file that `tells_first_step` writes

_PATTERN = np.random.Generator(np.random.PCG64(0)).integers(0, 256, (64, 64, 3), np.uint8)


def _advance(state: int, iterations: int) -> int:
    for _ in range(iterations):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
    return state


class SyntheticImages(gymnasium.Env[NDArray[np.uint8], np.int64]):
    """Images of 64×64×3 at about 50 µs per step, with as many actions as Procgen."""

    observation_space = gymnasium.spaces.Box(0, 255, (64, 64, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(15)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        super().reset(seed=seed)
        self._state, self._steps = int(self.np_random.integers(2**31)), 0
        return self._observation(), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        self._state = _advance(self._state + int(action), IMAGE_ITERATIONS)
        self._steps += 1
        return self._observation(), float(self._state & 1), False, self._steps >= EPISODE_STEPS, {}

    def _observation(self) -> NDArray[np.uint8]:
        return _PATTERN + np.uint8((self._state >> 8) & 255)  # wraps around


class ComputedSteps(gymnasium.Env[NDArray[np.float32], np.int64]):
    """Observations and actions like CartPole's, with a chosen number of iterations per step."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, iterations: int = SCALING_ITERATIONS) -> None:
        self._iterations = iterations

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self._state, self._steps = int(self.np_random.integers(2**31)), 0
        return self._observation(), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        self._state = _advance(self._state + int(action), self._iterations)
        self._steps += 1
        return self._observation(), float(self._state & 1), False, self._steps >= EPISODE_STEPS, {}

    def _observation(self) -> NDArray[np.float32]:
        return np.full(4, (self._state >> 8 & 255) / 256, np.float32)


class _TellsFirstStep(gymnasium.Wrapper[Any, Any, Any, Any]):
    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._file: Path | None = Path(os.environ[FIRST_STEP_FILE])

    def step(self, action: Any) -> Any:
        if self._file is not None:
            try:
                with self._file.open("x") as file:  # succeeds only for the first environment
                    file.write(repr(time.time()))
            except FileExistsError:
                pass  # another environment was first
            self._file = None
        return self.env.step(action)


def tells_first_step(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """Wrap an environment so that the time of the run's first step is written to a file."""
    return _TellsFirstStep(env)
