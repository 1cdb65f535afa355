"""Trajectories and statistics from any vector environment, for people who bring their own learner."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from envfleet.errors import SettingsError
from envfleet.fleet.random_actions import RandomBatch
from envfleet.rollout.trajectories import Collection, Trajectory
from envfleet.rollout.trajectory_recorder import TrajectoryRecorder

__all__ = ["Collection", "Trajectory", "collect"]

Array = np.ndarray[Any, Any]
Policy = Callable[[Any], Any]


def collect(
    fleet: VectorEnv[Any, Any, Any],
    policy: Policy | None = None,
    *,
    rollouts: int | None = None,
    steps: int | None = None,
    random: bool = False,
    seed: int | None = None,
    progress: bool = False,
) -> Collection:
    """Collect trajectories of `policy` (or of random actions) in a fleet, with statistics.

    `policy` takes the batch of observations and returns the batch of actions. With `random=True`, actions are sampled
    from the action space instead, restricted by `infos["action_mask"]` if the environments provide it.

    Pass `rollouts=N` for N complete episodes, or `steps=N` for at least N environment steps in total, in complete or
    partial episodes. Episodes are divided evenly among the environments (the first ones take the remainder). Taking
    the fastest ones would favour short episodes. An episode that is cut because its environment was lost does not
    count; the environment's next episode replaces it.

    The fleet is reset first: with `seed` if given, which also seeds the random actions. Without it, the fleet and its
    action space continue their own seeding. Every autoreset mode works: rows that only reset an environment
    (next-step), observations of the next episode (same-step) and rows of a lost environment are never mistaken for
    transitions. With autoreset disabled, this function resets finished environments.
    """
    mode = fleet.metadata.get("autoreset_mode")
    if not isinstance(mode, AutoresetMode):
        raise SettingsError(
            f"the metadata say autoreset_mode={mode!r}, expected a gymnasium.vector.AutoresetMode",
            hint="set metadata['autoreset_mode'] of your vector environment to the way it resets",
        )
    goal = _goal(rollouts, steps, fleet.num_envs)
    act = _actor(fleet, policy, random=random, seed=seed)
    recorder = TrajectoryRecorder(fleet, mode, goal.quota)
    started = time.perf_counter()
    everyone = np.ones(fleet.num_envs, np.bool_)
    observations, infos = fleet.reset(seed=seed)
    recorder.begin(everyone, observations, infos)
    act.see(infos)
    with _progress(goal.total, shown=progress) as show:
        while (done := goal.done(recorder)) < goal.total:
            show(done)
            actions = act(observations)
            observations, rewards, terminations, truncations, infos = fleet.step(actions)
            ended = np.logical_or(terminations, truncations)
            recorder.record(observations, actions, rewards, terminations, ended, infos)
            act.see(infos)
            if mode is AutoresetMode.DISABLED and ended.any():
                observations, infos = fleet.reset(options={"reset_mask": ended.copy()})
                recorder.begin(ended, observations, infos)
                act.see(infos, ended)
        show(goal.total)
    return recorder.finish(time.perf_counter() - started)


# ------------------------------------------------------------------------------------------------ arguments


@dataclass(frozen=True)
class _Goal:
    """When to stop: after a number of complete episodes per environment, or of steps in total."""

    total: int
    quota: Array | None  # [env], complete episodes; None counts steps

    def done(self, recorder: TrajectoryRecorder) -> int:
        return recorder.steps if self.quota is None else int(recorder.episodes.sum())


def _goal(rollouts: int | None, steps: int | None, n_envs: int) -> _Goal:
    if (rollouts is None) == (steps is None):
        raise SettingsError(
            f"received rollouts={rollouts!r} and steps={steps!r}, expected exactly one of them",
            hint="rollouts=N gives complete episodes, steps=N a number of environment steps",
        )
    name, total = ("rollouts", rollouts) if steps is None else ("steps", steps)
    if isinstance(total, bool) or not isinstance(total, int | np.integer) or total < 1:
        raise SettingsError(f"{name} is {total!r}, expected a whole number above 0")
    if steps is not None:
        return _Goal(int(total), None)
    share, more = divmod(int(total), n_envs)
    return _Goal(int(total), share + (np.arange(n_envs) < more))


def _actor(
    fleet: VectorEnv[Any, Any, Any], policy: Policy | None, *, random: bool, seed: int | None
) -> _PolicyActions | RandomBatch:
    if random and policy is None:
        return RandomBatch(fleet, seed)
    if not random and callable(policy):
        return _PolicyActions(policy)
    raise SettingsError(
        f"received policy={policy!r} and random={random!r}, expected a callable or random=True",
        hint="a policy takes the batched observations and returns the batched actions",
    )


# --------------------------------------------------------------------------------------------------- acting


class _PolicyActions:
    """The user's policy."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def see(self, infos: dict[str, Any], rows: Array | slice = slice(None)) -> None:
        """A policy acts on observations alone."""

    def __call__(self, observations: Any) -> Any:
        return self._policy(observations)


@contextmanager
def _progress(total: int, *, shown: bool) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr, shown only in a terminal."""
    if not (shown and sys.stderr.isatty()):
        yield lambda _done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("collecting", total=total)
        yield lambda done: bar.update(task, completed=min(done, total))
