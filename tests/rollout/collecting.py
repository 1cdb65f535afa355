"""A collector on a fleet with an untrained policy, for tests."""

from __future__ import annotations

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
from envfleet.fleet.spec import GroupSettings, OnError, Timeouts
from envfleet.policies.flat import FlatParameters
from envfleet.policies.policy import Policy, build_policy
from envfleet.policies.settings import PolicySettings
from envfleet.rollout.arrays import Rollout
from envfleet.rollout.collectors import CentralCollector, WorkerCollector
from envfleet.rollout.routine import ActingRoutine

Array = np.ndarray[Any, Any]
SEED, ENVS, GROUP, STEPS, PIECE = 3, 8, 4, 24, 8
SENTINEL = {"f": np.nan, "i": -77, "u": 201}
# Not written by a rollout: these arrays outlive it.
_LASTING = {"weights", "progress", "carried", "allowed", "masked"}


@dataclass
class Rig:
    """Fleet, collector and policy."""

    fleet: Fleet
    collector: WorkerCollector | CentralCollector
    policy: Policy
    buffers: int

    def collect(self, number: int) -> Rollout:
        self.collector.begin(number)
        return self.collector.finish()

    def poison(self) -> None:
        """Fill everything that a rollout should write with values that no environment or policy gives."""
        for name, array in self.collector.arrays.items():
            if name in _LASTING:
                continue
            if array.dtype == np.bool_:
                array.view(np.uint8)[...] = 0xCC
            else:
                array[...] = SENTINEL[array.dtype.kind]


def is_written(array: Array) -> Array:
    """Return where the values of `poison` were overwritten."""
    if array.dtype == np.bool_:
        return np.asarray(array.view(np.uint8) != 0xCC)
    if array.dtype.kind == "f":
        return ~np.isnan(array)
    return np.asarray(array != SENTINEL[array.dtype.kind])


@contextmanager
def collecting(
    env: str | Callable[..., Any],
    *,
    acting: str,
    memory: str = "none",
    settings: PolicySettings | None = None,
    buffers: int = 1,
    steps: int = STEPS,
    n_envs: int = ENVS,
    record_values: bool = True,
    timeout: Timeouts = Timeouts(),
    on_error: str = "raise",
    **hosting: Any,
) -> Iterator[Rig]:
    """Yield a rig whose policy has the weights of `SEED`, scaled up so that its choices are far from uniform.

    `hosting` has fields of `Hosting`.
    """
    settings = settings or PolicySettings(memory=memory, memory_size=8, hidden=(8,))  # type: ignore[arg-type]
    maker = PolicyMaker(partial(settings.build, record_values=record_values))
    routine = ActingRoutine(maker, steps, PIECE, buffers)
    fleet = build_fleet(
        makers_of(env, n_envs),
        GroupSettings(SEED, AutoresetMode.SAME_STEP, OnError(on_error)),
        Hosting(**{"backend": "sequential", "group_size": GROUP, **hosting}),
        timeouts=timeout,
        routine=routine if acting == "worker" else None,
    )
    with closing(fleet):
        _, infos = fleet.reset()
        collector: WorkerCollector | CentralCollector
        if acting == "worker":
            collector = WorkerCollector(fleet, routine, SEED)
        else:
            collector = CentralCollector(fleet, routine, SEED)
            collector.see_infos(infos)
        policy = build_policy(fleet.single_observation_space, fleet.single_action_space, settings, seed=SEED)
        policy.body.policy_head.weight.data.mul_(100.0)  # type: ignore[union-attr, operator]
        collector.publish(FlatParameters(policy).numpy())
        with closing(collector):
            yield Rig(fleet, collector, policy, buffers)


def kept(rollout: Rollout) -> dict[str, Any]:
    """Return copies of a rollout's arrays by name, without its times and the unused rows of its finals."""
    arrays: dict[str, Array] = {}
    for group, named in (("observations", rollout.observations), ("columns", rollout.columns)):
        arrays |= {f"{group}/{name}": array.copy() for name, array in named.items()}
    for name in ("rewards", "terminated", "truncated", "valid", "memory"):
        arrays[name] = getattr(rollout, name).copy()
    if rollout.masks is not None:
        arrays["masks"] = rollout.masks.copy()
    _, env, k = rollout.final_rows()
    if rollout.final_masks is not None:
        arrays["final_masks"] = rollout.final_masks[k, env]
    arrays |= {f"finals/{name}": array[k, env] for name, array in rollout.finals.items()}
    arrays["final_memory"] = rollout.final_memory[k, env]
    arrays["returns"], arrays["lengths"] = rollout.episodes()
    return arrays
