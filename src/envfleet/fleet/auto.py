"""`backend="auto"`: one environment is timed for a moment, then the place is chosen and the reason said."""

from __future__ import annotations

import time
import traceback
from dataclasses import dataclass

from envfleet.errors import EnvContext, EnvError
from envfleet.fleet.plan import EnvMaker

__all__ = ["Choice", "choose", "seconds_per_step"]

MOST_SECONDS, MOST_STEPS = 0.1, 200
EXCHANGE_SECONDS = 60e-6  # what one step of a fleet of processes costs beyond the environments' own time


@dataclass(frozen=True)
class Choice:
    """The backend and why."""

    backend: str
    reason: str


def seconds_per_step(make: EnvMaker, seed: int) -> float:
    """How long a step of one environment takes, resets included, with random actions."""
    try:
        env = make()
        try:
            env.reset(seed=seed)
            env.action_space.seed(seed)
            steps, began = 0, time.perf_counter()
            while steps < 1 or (steps < MOST_STEPS and time.perf_counter() - began < MOST_SECONDS):
                _, _, terminated, truncated, _ = env.step(env.action_space.sample())
                steps += 1
                if terminated or truncated:
                    env.reset()
            return (time.perf_counter() - began) / steps
        finally:
            env.close()
    except (Exception, SystemExit) as error:
        raise EnvError(
            f"{type(error).__name__}: {error}",
            EnvContext(0, "the timing of one environment", seed),
            original=traceback.format_exc(),
        ) from None


def choose(step_seconds: float, n_envs: int, workers: int, cores: int, *, by_themselves: bool = False) -> Choice:
    """Processes where they save more time than they cost, the caller's own thread where not.

    Workers that act `by_themselves` are woken once for many steps, so they pay off for the cheapest environment.
    """
    together = step_seconds * n_envs
    saved = together - together / workers
    timing = f"a step takes {_readable(step_seconds)}, {n_envs} of them {_readable(together)}"
    if workers == 1:
        why = "one usable core" if cores == 1 else "one group of environments"
        return Choice("sequential", f"{timing}; {why}, so other processes could not help")
    if by_themselves:
        return Choice("processes", f"{timing}; {workers} workers on {cores} usable cores step and act by themselves")
    if saved > 2 * EXCHANGE_SECONDS:
        return Choice("processes", f"{timing}; {workers} workers on {cores} usable cores save {_readable(saved)}")
    return Choice("sequential", f"{timing}; that is too little to be worth waking {workers} workers")


def _readable(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale or unit == "µs":
            return f"{seconds / scale:.3g} {unit}"
    raise AssertionError
