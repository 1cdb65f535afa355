"""The environments that the benchmarks step, built the same way everywhere.

This file needs only Gymnasium and NumPy (and MuJoCo or the Arcade Learning Environment for their workloads), so the
limit, the fleet and every other library's virtual environment can import it.

Slow steps compute; they do not sleep. The exceptions are the `waited` workloads, which stand for simulators that wait
for another process or the network.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from benchmarks.computing import ComputingEnv

# Fixed amounts of work, not adapted to the clock: a slower machine takes longer, for the limit as well.
# Both take about a millisecond on one 2.4 GHz EPYC core; each result records what a step took.
PYTHON_ITERATIONS = 10_000
HASHED_BYTES = 3 * 2**19
EPISODE_STEPS = 500
ACTION_ROWS = 128  # batches of actions drawn in advance and used in turn

_HASHED = bytes(range(256)) * (HASHED_BYTES // 256)


class PythonMillisecond(ComputingEnv):
    """About a millisecond of pure Python per step, holding the GIL, with 84×84 observations."""

    observation_space = gymnasium.spaces.Box(0, 255, (84, 84), np.uint8)
    action_space = gymnasium.spaces.Discrete(4)
    iterations, episode_steps = PYTHON_ITERATIONS, EPISODE_STEPS

    def observation(self, state: int) -> Any:
        return np.full((84, 84), (state >> 8) & 255, np.uint8)


class HashMillisecond(gymnasium.Env[NDArray[np.uint8], np.int64]):
    """About a millisecond of SHA-256 per step, which releases the GIL."""

    observation_space = gymnasium.spaces.Box(0, 255, (32,), np.uint8)
    action_space = gymnasium.spaces.Discrete(4)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        super().reset(seed=seed)
        self._state, self._steps = self.np_random.bytes(32), 0
        return np.frombuffer(self._state, np.uint8), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        digest = hashlib.sha256(_HASHED)
        digest.update(self._state)
        digest.update(bytes((int(action),)))
        self._state, self._steps = digest.digest(), self._steps + 1
        observation = np.frombuffer(self._state, np.uint8)
        return observation, float(observation[0] & 1), False, self._steps >= EPISODE_STEPS, {}


class Slow(ComputingEnv):
    """Some milliseconds per step, computing in Python or waiting, with a small observation."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (8,), np.float32)
    action_space = gymnasium.spaces.Discrete(4)
    episode_steps = EPISODE_STEPS

    def __init__(self, milliseconds: int, waits: bool) -> None:
        self.iterations = 0 if waits else milliseconds * PYTHON_ITERATIONS
        self._seconds = milliseconds / 1000.0 if waits else 0.0

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._seconds:
            time.sleep(self._seconds)
        return super().step(action)

    def observation(self, state: int) -> Any:
        return np.full(8, (state & 255) / 255.0, np.float32)


@dataclass(frozen=True)
class Workload:
    """One environment to step: a Gymnasium id, or a callable that builds it."""

    name: str
    title: str
    env: str | Callable[[], gymnasium.Env[Any, Any]]
    registered_by: str | None = None  # the module that registers the id with Gymnasium
    env_kwargs: dict[str, Any] = field(default_factory=dict)

    def register(self) -> None:
        """Register the id with Gymnasium."""
        if self.registered_by is not None:
            importlib.import_module(self.registered_by)

    def make_env(self) -> gymnasium.Env[Any, Any]:
        """Build one environment exactly as the fleet does."""
        self.register()
        if isinstance(self.env, str):
            return gymnasium.make(self.env, disable_env_checker=True, **self.env_kwargs)
        return self.env(**self.env_kwargs)


COINRUN = {"num_levels": 200, "distribution_mode": "easy"}
WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("cartpole", "CartPole-v1", "CartPole-v1"),
        Workload("halfcheetah", "HalfCheetah-v5", "HalfCheetah-v5"),
        Workload("breakout", "Breakout 210×160×3", "ALE/Breakout-v5", "ale_py"),
        Workload("coinrun", "CoinRun 64×64×3", "procgen/coinrun", "envfleet", COINRUN),
        Workload("antdir", "AntDir", "envfleet/AntDir-v0", "envfleet"),
        Workload("pointrobotsparse", "PointRobotSparse", "envfleet/PointRobotSparse-v0", "envfleet"),
        Workload("python", "1 ms of Python, 84×84", PythonMillisecond),
        Workload("hash", "1 ms without the GIL", HashMillisecond),
        *(
            Workload(
                f"{'waited' if waits else 'computed'}-{milliseconds}",
                f"{milliseconds} ms, {'waiting' if waits else 'computing'}",
                functools.partial(Slow, milliseconds, waits),
            )
            for waits in (False, True)
            for milliseconds in (1, 5, 20)
        ),
    )
}


def batches_of_actions(workload: Workload, n_envs: int, first_env: int = 0) -> NDArray[Any]:
    """Return random actions drawn in advance: `ACTION_ROWS` batches for `n_envs` environments."""
    env = workload.make_env()
    env.action_space.seed(first_env)
    rows = [[env.action_space.sample() for _ in range(n_envs)] for _ in range(ACTION_ROWS)]
    env.close()
    return np.array(rows, dtype=env.action_space.dtype)  # [row, env, ...]
