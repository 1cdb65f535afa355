"""Environments with a fixed amount of computation per step, for the training benchmarks.

No environment sleeps. Like `computing`, this file needs only Gymnasium and NumPy.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from benchmarks.computing import ComputingEnv

IMAGE_ITERATIONS = 450  # with the image about 50 µs on one 2.4 GHz EPYC core
SCALING_ITERATIONS = 1_000  # about 100 µs
EPISODE_STEPS = 200
FIRST_STEP_FILE = "ENVFLEET_BENCHMARK_FIRST_STEP"  # names the file that `tells_first_step` writes

_PATTERN = np.random.Generator(np.random.PCG64(0)).integers(0, 256, (64, 64, 3), np.uint8)


class SyntheticImages(ComputingEnv):
    """Images of 64×64×3 at about 50 µs per step, with as many actions as Procgen."""

    observation_space = gymnasium.spaces.Box(0, 255, (64, 64, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(15)
    iterations, episode_steps = IMAGE_ITERATIONS, EPISODE_STEPS

    def observation(self, state: int) -> Any:
        return _PATTERN + np.uint8((state >> 8) & 255)  # wraps around


class ComputedSteps(ComputingEnv):
    """Observations and actions like CartPole's, with a chosen number of iterations per step."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    episode_steps = EPISODE_STEPS

    def __init__(self, iterations: int = SCALING_ITERATIONS) -> None:
        self.iterations = iterations

    def observation(self, state: int) -> Any:
        return np.full(4, (state >> 8 & 255) / 256, np.float32)


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
