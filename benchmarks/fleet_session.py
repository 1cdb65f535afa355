"""Benchmark session that steps the fleet: in whole or half batches, with `trusted=True`, or in threads."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import cycle
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.stepping import Stepper, serve
from benchmarks.workloads import WORKLOADS, batches_of_actions


def whole_batches(fleet: Any, actions: Any) -> Callable[[], int]:
    """Step all environments with `step`; rows that only reset an environment are not counted."""
    batches = cycle(actions)
    n_envs: int = fleet.num_envs
    resetting = 0

    def advance() -> int:
        nonlocal resetting
        _, _, terminated, truncated, _ = fleet.step(next(batches))
        stepped = n_envs - resetting
        resetting = int(np.count_nonzero(terminated | truncated))
        return stepped

    fleet.reset(seed=0)
    return advance


def half_batches(fleet: Any, actions: Any) -> Callable[[], int]:
    """`recv` the half that is ready first and answer it with `send`; rows that only reset are not counted."""
    batches = cycle(actions)
    n_envs: int = fleet.num_envs
    half = max(1, n_envs // 2)
    resetting = np.zeros(n_envs, bool)

    def advance() -> int:
        _, _, terminated, truncated, infos = fleet.recv(half)
        env_ids = infos["env_id"]
        stepped = len(env_ids) - int(np.count_nonzero(resetting[env_ids]))
        resetting[env_ids] = terminated | truncated
        fleet.send(next(batches)[env_ids], env_ids)
        return stepped

    fleet.reset()
    for env_ids in np.array_split(np.arange(n_envs), 2 if n_envs > 1 else 1):
        fleet.send(actions[0][env_ids], env_ids)
    return advance


class StepClock:
    """Measures how long the workers are busy in a `step`, and how long the caller works instead of waiting for them."""

    def __init__(self, fleet: Any, advance: Callable[[], int]) -> None:
        from envfleet.fleet.waiting import Waiter

        self._fleet, self._advance = fleet, advance
        self.restart()
        wait_all = Waiter.wait_all

        def timed_wait(waiter: Waiter, seconds: float | None = None) -> bool:
            began = perf_counter()
            finished = wait_all(waiter, seconds)
            self._waited += perf_counter() - began
            return finished

        Waiter.wait_all = timed_wait  # type: ignore[method-assign]

    def restart(self) -> None:
        self._fleet.statistics()  # the shares of the next call are since this one
        self._began = perf_counter()
        self._stepped, self._waited, self._calls = 0.0, 0.0, 0

    def advance(self) -> int:
        began = perf_counter()
        steps = self._advance()
        self._stepped += perf_counter() - began
        self._calls += 1
        return steps

    def facts(self) -> dict[str, Any]:
        """Microseconds per call of `step` since the restart; for the workers, their mean."""
        workers = self._fleet.statistics().workers
        busy = float(np.mean([worker.busy_share for worker in workers])) * (perf_counter() - self._began)
        return {
            "busy_microseconds": 1e6 * busy / self._calls,
            "caller_microseconds": 1e6 * (self._stepped - self._waited) / self._calls,
        }


def build_fleet(mode: str, workload_name: str, n_envs: int, timed: bool = False) -> Stepper:
    """Build a fleet with default settings, except for those that `mode` sets."""
    import envfleet

    workload = WORKLOADS[workload_name]
    workload.register()
    settings: dict[str, Any] = {"backend": "threads" if mode == "threads" else "processes"}
    if mode == "trusted":
        settings["trusted"] = True
    fleet = envfleet.make(workload.env, n_envs, seed=0, quiet=True, env_kwargs=workload.env_kwargs, **settings)
    actions = batches_of_actions(workload, n_envs)
    stepping = half_batches if mode == "half-batches" else whole_batches
    advance = stepping(fleet, actions)
    if not timed:
        return Stepper(advance, fleet.close)
    clock = StepClock(fleet, advance)
    return Stepper(clock.advance, fleet.close, resume=clock.restart, facts=clock.facts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", choices=("step", "half-batches", "trusted", "threads"), required=True)
    parser.add_argument("--workload", choices=WORKLOADS, required=True)
    parser.add_argument("--envs", type=int, required=True)
    parser.add_argument("--timed", action="store_true", help="also report where the time of a step goes")
    options = parser.parse_args()
    serve(lambda: build_fleet(options.mode, options.workload, options.envs, options.timed))


if __name__ == "__main__":
    main()
