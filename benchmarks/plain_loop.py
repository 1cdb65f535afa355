"""A session that steps environments in turn: one such process is the plain loop, one per core the limit.

It neither talks to anyone nor keeps what the environments return, so nothing that steps the same
environments in Python on the same cores can be expected to be faster.
"""

from __future__ import annotations

import argparse
import mmap
import os
from collections.abc import Callable
from itertools import cycle

from benchmarks.stepping import Stepper, serve
from benchmarks.workloads import WORKLOADS, Workload, batches_of_actions

SMALLEST_STRETCH = 16  # environment steps between two looks at the clock, at least


def build_loop(workload: Workload, n_envs: int, first_env: int) -> Stepper:
    """Environments `first_env` and following, reset with the seeds the fleet would use."""
    envs = [workload.make_env() for _ in range(n_envs)]
    for index, env in enumerate(envs):
        env.reset(seed=first_env + index)
    rows = cycle([list(row) for row in batches_of_actions(workload, n_envs, first_env)])
    sweeps_per_stretch = max(1, SMALLEST_STRETCH // n_envs)
    steps_per_stretch = sweeps_per_stretch * n_envs

    def advance() -> int:
        for _ in range(sweeps_per_stretch):
            for env, action in zip(envs, next(rows), strict=True):
                _, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    env.reset()
        return steps_per_stretch

    def close() -> None:
        for env in envs:
            env.close()

    return Stepper(advance, close)


def meeting(descriptor: int, place: int, places: int) -> Callable[[], None]:
    """A function that returns once all `places` processes have called theirs: a barrier in shared memory."""
    arrivals = memoryview(mmap.mmap(descriptor, places * 8)).cast("q")

    def wait_for_others() -> None:
        arrivals[place] += 1
        own = arrivals[place]
        while any(arrivals[other] < own for other in range(places)):
            os.sched_yield()

    return wait_for_others


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", choices=WORKLOADS, required=True)
    parser.add_argument("--envs", type=int, required=True)
    parser.add_argument("--first-env", type=int, default=0)
    parser.add_argument("--barrier", type=int, nargs=3, metavar=("DESCRIPTOR", "PLACE", "PLACES"))
    options = parser.parse_args()
    wait = meeting(*options.barrier) if options.barrier else lambda: None
    serve(lambda: build_loop(WORKLOADS[options.workload], options.envs, options.first_env), wait)


if __name__ == "__main__":
    main()
