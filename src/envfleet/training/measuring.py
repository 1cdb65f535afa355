"""Measures the speed of training: collecting alone, learning alone, and both in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from envfleet.algorithms.settings import TrainingSettings
from envfleet.fleet.timing import timed
from envfleet.runs.metrics import SHARES
from envfleet.training.assembly import Parts, assemble, resolve
from envfleet.training.progress import TimeShares

__all__ = ["Speed", "assembled", "measure_speed"]

_COLLECTS, _LEARNS = 4, 3  # fewest calls in a measurement: warm-up, collecting, a rollout to learn from, learning, both


@dataclass(frozen=True)
class Speed:
    """Environment steps per second for a number of environments and workers, and time shares of training."""

    n_envs: int
    workers: int
    collecting: float
    learning: float
    training: float  # both in turn, as in training
    shares: dict[str, float]
    rollout_steps: int  # environment steps of one rollout, from which one call of the learner learns

    @property
    def least_seconds(self) -> float:
        """Time of a measurement that makes every call only once."""
        return self.rollout_steps * (_COLLECTS / self.collecting + _LEARNS / self.learning)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@contextmanager
def assembled(settings: TrainingSettings) -> Iterator[Parts]:
    """A separate fleet and learner, as `train` would build them."""
    resolved = resolve(settings)
    with closing(resolved.stage), closing(assemble(resolved)) as parts:
        yield parts


def measure_speed(parts: Parts, seconds: float) -> Speed:
    """Measure collecting, learning and both for a third of the time each."""
    phases = _phases(parts)
    collecting = timed(next(phases), seconds / 3).steps_per_second
    learning = timed(next(phases), seconds / 3).steps_per_second
    shares: list[dict[str, float]] = []
    both = timed(_training(parts, shares), seconds / 3)
    means = {name: sum(each[f"time/{name}"] for each in shares) / len(shares) for name in SHARES}
    rollout_steps = both.steps // len(shares)
    return Speed(
        parts.fleet.num_envs,
        parts.fleet.workers,
        collecting,
        learning,
        both.steps_per_second,
        means,
        rollout_steps,
    )


def _phases(parts: Parts) -> Iterator[Callable[[], int]]:
    """Yield collecting and learning, each after one warm-up call: first calls load and compile."""

    def collect() -> int:
        return int(parts.schedule.next().rewards.size)

    collect()
    yield collect
    rollout = parts.schedule.next()

    def learn() -> int:
        parts.learner.learn(rollout, 0.0)
        return int(rollout.rewards.size)

    learn()
    yield learn


def _training(parts: Parts, shares: list[dict[str, float]]) -> Callable[[], int]:
    """Return a function that runs one round of training. It appends its time shares to `shares`."""
    clock = TimeShares(parts.fleet.workers)
    parts.schedule.waited = 0.0

    def advance() -> int:
        rollout = parts.schedule.next()
        seconds = rollout.seconds.copy()
        began = time.perf_counter()
        parts.learner.learn(rollout, 0.0)
        learning = time.perf_counter() - began
        waited, parts.schedule.waited = parts.schedule.waited, 0.0
        shares.append(clock.shares(seconds, waited, learning, rollout.rewards.size))
        return int(rollout.rewards.size)

    return advance
