"""A session that collects rollouts of random actions, chosen in the workers: the cost of collecting alone.

With the schedule `sync` the workers wait for each other after every rollout; with `async` they do not.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.spaces import Box

from benchmarks.stepping import Stepper, serve
from benchmarks.workloads import WORKLOADS
from envfleet.rollout.acting import Decision
from envfleet.rollout.arrays import Column

if TYPE_CHECKING:
    from envfleet.fleet.fleet import Fleet
    from envfleet.rollout.routine import ActingRoutine

Array = np.ndarray[Any, Any]
STEPS = 128  # of each environment in a rollout
NO_WEIGHTS: Array = np.empty(0, np.float32)


class RandomActor:
    """Implements `envfleet.rollout.acting.Actor` for Discrete actions and Boxes: its noise is the actions."""

    memory_size = weights_size = 0

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        self._space = action_space
        self._is_box = isinstance(action_space, Box)
        self.mask_size = 0 if self._is_box else int(action_space.n)
        shape, kind = (action_space.shape, "<f4") if self._is_box else ((), "<i8")
        self.columns: Mapping[str, Column] = {"actions": Column(shape, kind)}

    def load(self, weights: Array) -> None:
        """Do nothing: there are no weights."""

    def draw_noise(self, generator: np.random.Generator, shape: tuple[int, int]) -> Array:
        if self._is_box:
            uniform = generator.random((*shape, *self._space.shape), np.float32)
            return np.asarray(self._space.low + (self._space.high - self._space.low) * uniform)
        return generator.integers(self.mask_size, size=shape)

    def bind(self, observations: dict[str, Array], memory: Array, mask: Array) -> RandomActor:
        return self

    def act(self, noise: Array, *, masked: bool) -> Decision:
        return Decision(noise, (noise,))


@dataclass(frozen=True)
class RandomActorMaker:
    """Builds the actor in each worker."""

    modules = ()

    def __call__(self, observation_space: Any, action_space: Any) -> RandomActor:
        return RandomActor(observation_space, action_space)


def build(workload_name: str, n_envs: int, schedule: str) -> Stepper:
    from gymnasium.vector import AutoresetMode

    from envfleet.fleet.make import Hosting, build_fleet
    from envfleet.fleet.makers import makers_of
    from envfleet.fleet.spec import GroupSettings
    from envfleet.machine import usable_cores
    from envfleet.rollout.routine import ActingRoutine

    workload = WORKLOADS[workload_name]
    workload.register()
    buffers = {"sync": 1, "async": 2}[schedule]
    routine = ActingRoutine(RandomActorMaker(), STEPS, STEPS, buffers, weight_sets=usable_cores())
    fleet = build_fleet(
        makers_of(workload.env, n_envs, workload.env_kwargs),
        GroupSettings(0, AutoresetMode.SAME_STEP),
        Hosting("processes"),
        routine=routine,
        quiet=True,
    )
    fleet.reset()
    stepper = waiting(fleet, routine) if schedule == "sync" else streaming(fleet, routine)
    for _ in range(2 * buffers * len(fleet.groups_of_workers)):  # the first rollouts touch new memory
        stepper.advance()
    return stepper


def waiting(fleet: Fleet, routine: ActingRoutine) -> Stepper:
    """Workers that wait for each other after every rollout."""
    from envfleet.rollout.collectors import WorkerCollector
    from envfleet.rollout.schedules import Schedule

    schedule = Schedule(WorkerCollector(fleet, routine, 0), lambda: NO_WEIGHTS, lag=0)
    return Stepper(lambda: int(schedule.next().rewards.size), fleet.close)


def streaming(fleet: Fleet, routine: ActingRoutine) -> Stepper:
    """Workers that begin their next rollout as soon as they finish one."""
    from envfleet.rollout.worker_rollouts import StreamedRollouts, WorkerRequests

    rollouts = StreamedRollouts(WorkerRequests(fleet, routine, 0))
    rollouts.publish(NO_WEIGHTS, 0)

    def advance() -> int:
        rollout = rollouts.next()
        rollouts.release(rollout)
        return STEPS * sum(len(fleet.groups[group]) for group in rollouts.groups[rollout.worker])

    def close() -> None:
        rollouts.close()
        fleet.close()

    return Stepper(advance, close, pause=rollouts.settle)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", choices=WORKLOADS, required=True)
    parser.add_argument("--envs", type=int, required=True)
    parser.add_argument("--schedule", choices=("sync", "async"), default="sync")
    options = parser.parse_args()
    serve(lambda: build(options.workload, options.envs, options.schedule))


if __name__ == "__main__":
    main()
