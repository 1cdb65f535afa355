"""A session that collects rollouts of random actions, chosen in the workers: the cost of collecting alone."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from benchmarks.stepping import Stepper, serve
from benchmarks.workloads import WORKLOADS
from envfleet.rollout.acting import Decision
from envfleet.rollout.arrays import Column

Array = np.ndarray[Any, Any]
STEPS = 128  # of each environment in a rollout


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


def build(workload_name: str, n_envs: int) -> Stepper:
    from gymnasium.vector import AutoresetMode

    from envfleet.fleet.make import Hosting, build_fleet
    from envfleet.fleet.makers import makers_of
    from envfleet.fleet.spec import GroupSettings
    from envfleet.rollout.collectors import WorkerCollector
    from envfleet.rollout.routine import ActingRoutine
    from envfleet.rollout.schedules import Schedule

    workload = WORKLOADS[workload_name]
    workload.register()
    routine = ActingRoutine(RandomActorMaker(), STEPS, STEPS, 1)
    fleet = build_fleet(
        makers_of(workload.env, n_envs, workload.env_kwargs),
        GroupSettings(0, AutoresetMode.SAME_STEP),
        Hosting("processes"),
        routine=routine,
        quiet=True,
    )
    fleet.reset()
    collector = WorkerCollector(fleet, routine, 0)
    schedule = Schedule(collector, lambda: np.empty(0, np.float32), lag=0)

    def advance() -> int:
        return int(schedule.next().rewards.size)

    def close() -> None:
        collector.close()
        fleet.close()

    for _ in range(2):  # the first rollouts touch new memory
        advance()
    return Stepper(advance, close)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", choices=WORKLOADS, required=True)
    parser.add_argument("--envs", type=int, required=True)
    options = parser.parse_args()
    serve(lambda: build(options.workload, options.envs))


if __name__ == "__main__":
    main()
