"""`backend="auto"`: times one environment briefly, then chooses backend and number of workers, and says why.

The choice never changes a result. The cost model is small: the time that the environments take on N workers, plus the
cost of exchanging a step with other processes and of waking each of them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from envfleet.fleet.os_compat import voluntary_switches
from envfleet.fleet.pool import PoolEnv
from envfleet.fleet.random_actions import RandomAgent
from envfleet.fleet.timing import timed
from envfleet.seeding import stream
from envfleet.wording import duration

__all__ = ["Choice", "StepCost", "choose", "measure"]

MOST_SECONDS, MOST_STEPS, REPEATS = 0.1, 200, 5
EXCHANGE_SECONDS = 60e-6  # overhead of one step of a fleet of processes, beyond the environments' own time
WAKE_SECONDS = 15e-6  # overhead per worker
ACT_SECONDS = 100e-6  # rough time for a small policy to act for one group
WAITS_BELOW = 0.75  # if the CPU share of a step is below this, more workers than cores help
LONG_SECONDS = 5e-3  # a step this long hardly suffers from another process on its core
WORKERS_PER_CORE = 4  # for such steps, so that the system can balance cores of different speed
MOST_WORKERS = 64  # maximum started by default, because each is a process


@dataclass(frozen=True)
class StepCost:
    """Time of one step of one environment, including its share of resets."""

    seconds: float
    cpu_seconds: float
    waits: bool = False  # the step waits for something outside the process: another process, the network, a clock

    def on(self, workers: int, n_envs: int, cores: int) -> float:
        """Seconds that a step of all environments takes on this many workers."""
        load = -(-n_envs // workers)
        if self.waits:
            return max(load * self.seconds, n_envs * self.cpu_seconds / cores)
        return max(load * self.seconds, n_envs * self.seconds / min(workers, cores))

    def __str__(self) -> str:
        computed = f", {duration(self.cpu_seconds)} of it computed" if self.waits else ""
        return f"a step takes {duration(self.seconds)}{computed}"


def measure(
    env: Any,
    seed: int,
    n_envs: int,
    draw_task: Callable[[Any], Any] | None = None,
    *,
    starting: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> StepCost:
    """Measure the step cost of one of `n_envs` environments with random actions; it must be reset afterwards.

    `draw_task` draws its task from a generator. An environment of a pool costs its share of a step of all of them.
    Environments are built and reset within `starting`, because that may take longer than a step.
    """
    if not isinstance(env.unwrapped, PoolEnv):
        task = None if draw_task is None else draw_task(stream(seed))
        return _measured(env, seed, None if task is None else {"task": task}, starting)
    with starting():
        whole = env.unwrapped.together(n_envs)
    cost = _measured(whole, seed, None, starting)
    whole.close()
    return StepCost(cost.seconds / n_envs, cost.cpu_seconds / n_envs, cost.waits)


def _measured(
    env: Any, seed: int, options: dict[str, Any] | None, starting: Callable[[], AbstractContextManager[None]]
) -> StepCost:
    agent = RandomAgent(env.action_space, seed)
    with starting():
        _, info = env.reset(seed=seed, options=options)
    env.step(agent(None, info))  # the first step may compile something
    switches, deadline = voluntary_switches(), time.perf_counter() + MOST_SECONDS
    seconds = cpu_seconds = math.inf
    total = 0
    for _ in range(REPEATS):  # the fastest counts: a cheap step is easily disturbed
        timing = timed(_player(env, agent, options, starting), deadline - time.perf_counter(), MOST_STEPS)
        total += timing.steps
        # On a busy machine a step also queues for its core. Those seconds do not count.
        if timing.undisturbed_seconds / timing.steps < seconds:
            seconds, cpu_seconds = timing.undisturbed_seconds / timing.steps, timing.cpu_seconds / timing.steps
        if time.perf_counter() >= deadline:
            break
    # Where the queue is not known, the CPU share is low on a busy machine too. But a step that really waits gives up
    # its core voluntarily.
    now = voluntary_switches()
    gave_way = now is None or switches is None or now - switches >= total / 2
    if gave_way and cpu_seconds < WAITS_BELOW * seconds:
        return StepCost(seconds, cpu_seconds, waits=True)
    return StepCost(min(seconds, cpu_seconds), cpu_seconds)


def _player(
    env: Any,
    agent: RandomAgent,
    options: dict[str, Any] | None,
    starting: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Callable[[], int]:
    """Return a function that makes one step, after a reset if an episode begins."""
    info: dict[str, Any] | None = None

    def advance() -> int:
        nonlocal info
        if info is None:
            with starting():
                _, info = env.reset(options=options)
        _, _, terminated, truncated, info = env.step(agent(None, info))
        if terminated or truncated:
            info = None
        return 1

    return advance


@dataclass(frozen=True)
class Choice:
    """The chosen backend, number of workers and way to act, and the reason."""

    backend: str
    workers: int
    reason: str
    acting: str = "central"  # or "worker": each worker acts for its own groups


def choose(
    cost: StepCost,
    n_envs: int,
    cores: int,
    *,
    workers: int | None = None,
    most: int | None = None,
    groups: int | None = None,
) -> Choice:
    """Choose the fastest way to step `n_envs` environments; with acting `groups`, the fastest way to act and step.

    `workers` is the requested number, `most` the number of workers that can have work (default: one per environment).

    Workers that act host whole acting groups and are woken once for many steps. If the caller acts for all groups,
    each environment can be stepped by a different worker.
    """
    timing = f"{cost}, {n_envs} of them {duration(n_envs * cost.seconds)}"
    count = _workers(cost, n_envs, cores, workers, n_envs if most is None else most)
    acting = 0.0 if groups is None else groups * ACT_SECONDS
    alone = cost.seconds * n_envs + acting
    central = cost.on(count, n_envs, cores) + acting + EXCHANGE_SECONDS + WAKE_SECONDS * count
    own_groups = min(groups or 1, count)
    if groups is not None and own_groups > 1:
        by_themselves = cost.on(own_groups, n_envs, cores) + acting / own_groups
        if central > by_themselves - EXCHANGE_SECONDS:
            reason = f"{timing}; {own_groups} workers on {cores} usable cores step and act by themselves"
            return Choice("processes", own_groups, reason, "worker")
    elif count == 1:
        why = "one usable core" if cores == 1 and workers is None else "one worker"
        return Choice("sequential", 1, f"{timing}; {why}, so other processes could not help", "worker")
    elif central > alone - EXCHANGE_SECONDS:
        reason = f"{timing}; that is too little to be worth waking {count} workers"
        return Choice("sequential", 1, reason, "worker")
    saved = duration(alone - central)
    why_more = "steps wait" if cost.waits else "steps are long and the system balances them"
    more = f" (more than cores, since {why_more})" if count > cores and workers is None else ""
    return Choice("processes", count, f"{timing}; {count} workers{more} on {cores} usable cores save {saved}")


def _workers(cost: StepCost, n_envs: int, cores: int, given: int | None, most: int) -> int:
    """Number of workers that keeps the cores busy, reduced as far as the largest load per worker stays the same."""
    if given is not None:
        return min(given, most)
    busy = cores
    if cost.waits:
        busy = max(cores, math.ceil(cores * cost.seconds / max(cost.cpu_seconds, 1e-9)))
    elif cost.seconds >= LONG_SECONDS and cores > 1:
        busy = WORKERS_PER_CORE * cores
    busy = min(busy, max(cores, MOST_WORKERS), most)
    return -(-n_envs // -(-n_envs // busy))
