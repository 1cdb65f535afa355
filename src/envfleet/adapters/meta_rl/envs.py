"""One environment with the observation of VariBAD, and the rollouts assigned to it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray

from envfleet.environments.meta.settings import TaskSettings
from envfleet.environments.meta.trial import Trial
from envfleet.fleet.makers import spec_of
from envfleet.seeding import derive_seed, draw_seed

__all__ = ["AssignedRollouts", "VariBadWrapper", "make_env", "rollout_seed", "worker_env"]

_ROLLOUT = 0x2011  # key of the seeds of rollouts


def make_env(
    env_id: str, episodes_per_task: int, seed: int | None = None, oracle: bool = False, **kwargs: Any
) -> VariBadWrapper:
    """Make an environment with tasks, and wrap it. `kwargs` are its settings, such as `num_train_tasks`."""
    seed = draw_seed() if seed is None else seed
    env = VariBadWrapper(_made(env_id, kwargs), episodes_per_task, oracle, seed=seed)
    env.action_space.seed(seed)
    env.reset(seed=seed)
    return env


def _made(env_id: str, kwargs: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    return gymnasium.make(spec_of(env_id), disable_env_checker=True, **kwargs)


def worker_env(env_id: str, episodes_per_task: int, oracle: bool, kwargs: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    """The environment of a `ParallelEnvManager`, as its worker builds it."""
    return AssignedRollouts(VariBadWrapper(_made(env_id, kwargs), episodes_per_task, oracle))


def rollout_seed(seed: int, number: int) -> int:
    """The seed of a rollout. It depends on nothing else, so it does not matter which environment plays it."""
    return derive_seed(seed, _ROLLOUT, number)


class VariBadWrapper(gymnasium.Wrapper[NDArray[np.float32], Any, Any, Any], RecordConstructorArgs):
    """Joins `episodes_per_task` episodes of a task to a rollout, with the observation of VariBAD.

    Observation: the state, the task (for an oracle only), and, if there is more than one episode, 1 after the end of an
    episode. `info["done_mdp"]` says the same. Unlike there, the state after an episode is the first one of the next, so
    the agent does not act on an outdated one; and actions lie in [-1, 1], as `action_space` says.
    """

    def __init__(
        self, env: gymnasium.Env[Any, Any], episodes_per_task: int, oracle: bool = False, *, seed: int = 0
    ) -> None:
        RecordConstructorArgs.__init__(self, episodes_per_task=episodes_per_task, oracle=oracle, seed=seed)
        inner = env.env if isinstance(env, Trial) else env  # the registered environments are trials already
        own = getattr(inner.unwrapped, "settings", None)
        chosen = {"episodes_per_task": episodes_per_task, "oracle": oracle, "show_previous": True}
        known = isinstance(own, TaskSettings)
        trial = Trial(inner, dataclasses.replace(own, **chosen) if known else TaskSettings(**chosen))  # type: ignore[type-var, arg-type]  # `own` is TaskSettings
        super().__init__(trial)
        self.episodes_per_task, self.seed = episodes_per_task, seed
        self.rollouts_begun = 0  # by collect_rollouts_parallel
        parts, space = trial.parts, trial.observation_space
        assert isinstance(space, spaces.Box)
        self._first = parts["first"].start
        flag = [self._first] if episodes_per_task > 1 else []
        self._seen = np.r_[parts["state"], parts["task"], flag].astype(np.int64)  # places in the trial's observation
        self._has_flag = bool(flag)
        self.observation_space = spaces.Box(space.low[self._seen], space.high[self._seen], dtype=np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None, task: Any = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin a rollout of `task`, or of the next task."""
        if task is not None:
            options = {**(options or {}), "task": task}
        observation, info = self.env.reset(seed=seed, options=options)
        return self._chosen(observation, done_mdp=False), info

    def step(self, action: Any) -> tuple[NDArray[np.float32], Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        done = bool(observation[self._first]) or terminated or truncated
        return self._chosen(observation, done_mdp=done), reward, terminated, truncated, {**info, "done_mdp": done}

    def _chosen(self, observation: NDArray[np.float32], *, done_mdp: bool) -> NDArray[np.float32]:
        seen: NDArray[np.float32] = observation[self._seen]
        if self._has_flag:
            seen[-1] = done_mdp
        return seen


class AssignedRollouts(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Begins assigned rollouts, each with its seed and task, one at each reset. Without any, it passes resets on."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)
        self._assigned: list[tuple[int, Any]] = []

    def assign(self, rollouts: Sequence[tuple[int, Any]]) -> None:
        """Replace the assigned rollouts: pairs of a seed and a task, or None for the next task."""
        self._assigned = list(rollouts)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if self._assigned:
            seed, task = self._assigned.pop(0)
            options = {**(options or {}), "task": task}
        return self.env.reset(seed=seed, options=options)
