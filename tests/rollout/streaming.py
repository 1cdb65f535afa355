"""Rollouts of single workers, with environments that a test can hold."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from envfleet.algorithms.acting import PolicyMaker
from envfleet.fleet.fleet import Fleet
from envfleet.fleet.make import Hosting, build_fleet
from envfleet.fleet.makers import makers_of
from envfleet.fleet.spec import GroupSettings
from envfleet.policies.flat import FlatParameters
from envfleet.policies.settings import PolicySettings
from envfleet.rollout.routine import ActingRoutine
from envfleet.rollout.worker_rollouts import InlineRollouts, StreamedRollouts, WorkerRequests, WorkerRollout
from tests.rollout.envs import Counter

Array = np.ndarray[Any, Any]
SEED, STEPS, GROUP = 3, 6, 2
NAMES = ("observations/", "rewards", "columns/actions", "columns/log_probs", "terminated", "truncated", "valid")
WORKERS: dict[str, dict[str, Any]] = {
    "sequential": {"backend": "sequential"},
    "threads": {"backend": "threads", "workers": 2},
    "processes": {"backend": "processes", "workers": 2},
}
held: dict[int, threading.Event] = defaultdict(threading.Event)  # by seed: a held environment waits for its event


class Holdable(Counter):
    """A counter whose steps wait while a test holds it (threads only: the test sets the event)."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Array, dict[str, Any]]:
        if seed is not None:
            self._held_by = seed
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        if self._held_by in held:
            assert held[self._held_by].wait(100.0)
        return super().step(action)


@dataclass
class Stream:
    """A fleet whose workers collect one by one, and weights to act with."""

    fleet: Fleet
    workers: StreamedRollouts | InlineRollouts
    requests: WorkerRequests
    weights: Callable[[int], Array]  # of each version

    def columns(self, rollout: WorkerRollout, name: str) -> Array:
        """Return a copy of the rollout's rows `[time, env]` of one array."""
        groups = [self.fleet.groups[group] for group in self.workers.groups[rollout.worker]]
        return np.concatenate([self.workers.arrays[name][rollout.buffer][:, rows] for rows in groups], axis=1)

    def bytes_of(self, rollout: WorkerRollout) -> list[bytes]:
        return [self.columns(rollout, name).tobytes() for name in NAMES]


@contextmanager
def streaming(
    env: Any,
    *,
    backend: str,
    n_envs: int = 4,
    buffers: int = 2,
    groups: list[list[int]] | None = None,
    **options: Any,
) -> Iterator[Stream]:
    """Yield a stream with groups of two environments; with threads and processes there are two workers.

    `groups` replaces those of each worker.
    """
    settings = PolicySettings(hidden=(8,))
    hosting = {**WORKERS[backend], "group_size": GROUP, **options}
    count = 2 if groups else hosting.get("workers", 1)
    routine = ActingRoutine(PolicyMaker(partial(settings.build, record_values=False)), STEPS, STEPS, buffers, (), count)
    fleet = build_fleet(
        makers_of(env, n_envs), GroupSettings(SEED, AutoresetMode.SAME_STEP), Hosting(**hosting), routine=routine
    )
    with closing(fleet):
        fleet.reset()

        def weights(version: int) -> Array:
            policy = settings.build(fleet.single_observation_space, fleet.single_action_space, seed=version)
            policy.body.policy_head.weight.data.mul_(100.0)  # type: ignore[union-attr, operator]
            return FlatParameters(policy).numpy()

        requests = WorkerRequests(fleet, routine, SEED, groups)
        kind = InlineRollouts if backend == "sequential" else StreamedRollouts
        with closing(kind(requests)) as workers:
            yield Stream(fleet, workers, requests, weights)
