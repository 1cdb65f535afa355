"""Session that steps environments one after the other: one process is the plain loop, one per core is the limit.

It does not communicate and stores nothing that the environments return. Nothing that steps the same environments in
Python on the same cores can be expected to be faster. With `--store` it keeps its observations, as a rollout does.
"""

from __future__ import annotations

import argparse
import mmap
import os
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle

import numpy as np

from benchmarks.stepping import Stepper, serve
from benchmarks.workloads import WORKLOADS, Workload, batches_of_actions

SMALLEST_STRETCH = 16  # fewest environment steps between two readings of the clock


class Meeting:
    """Barrier in shared memory: processes wait for each other before a measurement, or after every step."""

    def __init__(self, descriptor: int, place: int, places: int) -> None:
        words = memoryview(mmap.mmap(descriptor, 2 * places * 8)).cast("q")
        self._arrivals, self._away = words[:places], words[places:]
        self._place, self._others = place, [other for other in range(places) if other != place]

    def wait(self) -> None:
        """Return once all other processes have arrived as often as this one, ignoring those that are away."""
        arrivals, away = self._arrivals, self._away
        arrivals[self._place] += 1
        own = arrivals[self._place]
        for other in self._others:
            while arrivals[other] < own and not away[other]:
                os.sched_yield()

    def leave(self) -> None:
        self._away[self._place] = 1

    def come_back(self) -> None:
        self._away[self._place] = 0


def add_barriers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--barrier", type=int, nargs=3, metavar=("DESCRIPTOR", "PLACE", "PLACES"))
    parser.add_argument("--in-step", type=int, help="descriptor of the barrier after every step")


class Barriers:
    """The barrier before each measurement and the one after every step, as far as the options ask for them."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._start = Meeting(*options.barrier) if options.barrier else None
        self._steps = Meeting(options.in_step, *options.barrier[1:]) if options.in_step is not None else None

    def wait_for_others(self) -> None:
        """Begin the measurement together."""
        if self._steps is not None:
            self._steps.leave()  # the others may still be warming up, and must not wait for this process
        if self._start is not None:
            self._start.wait()
        if self._steps is not None:
            self._steps.come_back()

    def after_every_step(self, stepper: Stepper) -> Stepper:
        """Return the stepper that also waits for the other processes after every step."""
        steps = self._steps
        if steps is None:
            return stepper

        def advance() -> int:
            count = stepper.advance()
            steps.wait()
            return count

        return replace(stepper, advance=advance, pause=_both(stepper.pause, steps.leave), resume=steps.come_back)


def _both(first: Callable[[], None], second: Callable[[], None]) -> Callable[[], None]:
    def call() -> None:
        first()
        second()

    return call


def build_loop(workload: Workload, n_envs: int, first_env: int, stored: int = 0, stretch: int = 1) -> Stepper:
    """Build `n_envs` environments, the first with index `first_env`, with the seeds the fleet would use.

    They keep the observations of the last `stored` steps. `stretch` is the fewest environment steps between two
    readings of the clock.
    """
    envs = [workload.make_env() for _ in range(n_envs)]
    space = envs[0].observation_space
    kept = cycle(np.zeros((stored, n_envs, *(space.shape or ())), space.dtype) if stored else [None])
    for index, env in enumerate(envs):
        env.reset(seed=first_env + index)
    rows = cycle([list(row) for row in batches_of_actions(workload, n_envs, first_env)])
    sweeps_per_stretch = max(1, stretch // n_envs)
    steps_per_stretch = sweeps_per_stretch * n_envs

    def advance() -> int:
        for _ in range(sweeps_per_stretch):
            row = next(kept)
            for i, (env, action) in enumerate(zip(envs, next(rows), strict=True)):
                observation, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    observation, _ = env.reset()
                if row is not None:
                    row[i] = observation
        return steps_per_stretch

    def close() -> None:
        for env in envs:
            env.close()

    return Stepper(advance, close)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", choices=WORKLOADS, required=True)
    parser.add_argument("--envs", type=int, required=True)
    parser.add_argument("--first-env", type=int, default=0)
    add_barriers(parser)
    parser.add_argument("--wait-every", type=int, default=1, help="with --in-step: wait after this many steps")
    parser.add_argument("--store", type=int, default=0, help="keep the observations of this many steps")
    options = parser.parse_args()
    barriers = Barriers(options)
    stretch = SMALLEST_STRETCH if options.in_step is None else options.envs * options.wait_every

    def build() -> Stepper:
        workload = WORKLOADS[options.workload]
        return barriers.after_every_step(build_loop(workload, options.envs, options.first_env, options.store, stretch))

    serve(build, barriers.wait_for_others)


if __name__ == "__main__":
    main()
