"""The progress of a training: its budget, its episodes, and its time shares."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean
from typing import Any

import numpy as np

from envfleet.algorithms.settings import TrainingSettings
from envfleet.fleet.episode_numbers import followed, means, successes
from envfleet.rollout.arrays import Rollout

__all__ = ["LATEST", "RECENT", "Progress", "TimeShares"]

RECENT, LATEST = 100, 10  # episodes per mean return


class Progress:
    """Counts steps and episodes against the budget. The first limit reached ends the training."""

    def __init__(self, settings: TrainingSettings) -> None:
        self._settings = settings
        self.steps = 0
        self.episodes = 0
        self.lost = 0  # steps that never happened, because of a fault of their environment or its worker
        self._seconds_before = 0.0  # of earlier processes, if the run was resumed
        self._began = time.monotonic()
        self._seconds_aside = 0.0  # spent on evaluations and checkpoints
        self._returns: deque[float] = deque(maxlen=RECENT)
        self._lengths: deque[int] = deque(maxlen=RECENT)
        self._numbers: dict[str, deque[float]] = {  # of infos, by key
            key: deque(maxlen=RECENT) for key in followed(settings.log_info)
        }

    def begin(self) -> None:
        """Start the budget's clock."""
        self._began = time.monotonic()

    def add(self, rollout: Rollout) -> list[tuple[float, int]]:
        """Count a rollout and return the episodes that ended in it."""
        self.steps += rollout.rewards.size
        self.lost += rollout.rewards.size - rollout.steps
        returns, lengths = rollout.episodes()
        ended = list(zip(returns.tolist(), lengths.tolist(), strict=True))
        self._returns.extend(returns.tolist())
        self._lengths.extend(lengths.tolist())
        for key, numbers in rollout.numbers().items():
            self._numbers[key].extend(numbers.tolist())
        self.episodes += len(ended)
        return ended

    @property
    def seconds(self) -> float:
        """Seconds spent on the run, by a monotonic clock."""
        return self._seconds_before + time.monotonic() - self._began

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Count this time as neither collecting nor learning (evaluations, checkpoints)."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._seconds_aside += time.monotonic() - began

    @property
    def seconds_trained(self) -> float:
        """Seconds spent on collecting and learning."""
        return self.seconds - self._seconds_aside

    @property
    def until(self) -> float:
        """When the time limit of the run is reached, by `time.monotonic()`."""
        if self._settings.duration is None:
            return math.inf
        return self._began + self._settings.duration * 3600.0 - self._seconds_before

    @property
    def time_left(self) -> float:
        """Seconds until the time limit."""
        return self.until - time.monotonic()

    @property
    def mean_return(self) -> float:
        return float(np.mean(self._returns)) if self._returns else float("nan")

    @property
    def mean_of_latest(self) -> float:
        return float(np.mean(list(self._returns)[-LATEST:])) if self._returns else float("nan")

    @property
    def mean_length(self) -> float:
        return float(np.mean(self._lengths)) if self._lengths else float("nan")

    @property
    def of_infos(self) -> dict[str, float]:
        """Mean of each info number over the last episodes, and the success rate."""
        metrics = {f"info/{name}": mean for name, mean in means(self._numbers).items()}
        succeeded = successes(self._numbers)
        return metrics if succeeded is None else {"rollout/success_rate": fmean(succeeded), **metrics}

    @property
    def without_numbers(self) -> list[str]:
        """Keys of log_info for which none of the last episodes had a number."""
        asked = self._settings.log_info if self._returns else ()
        return [key for key in asked if all(math.isnan(value) for value in self._numbers[key])]

    @property
    def share(self) -> float:
        """Share of the budget that is spent, 0 to 1. Learning-rate and other schedules follow it.

        With several budgets, steps count before episodes and episodes before time: unlike the clock, they are
        reproducible.
        """
        return min(1.0, next(iter(self._shares().values())))

    @property
    def spent_share(self) -> float:
        """Share of the budget that is closest to its limit, 0 to 1."""
        return self.spent_share_at(self.steps)

    def spent_share_at(self, steps: int) -> float:
        """The same for a given number of steps."""
        return min(1.0, max(self._shares(steps).values()))

    @property
    def spent(self) -> bool:
        return bool(self.spent_limits)

    @property
    def spent_limits(self) -> list[str]:
        """Names of the budgets that are spent."""
        return [name for name, share in self._shares().items() if share >= 1.0]

    def _shares(self, steps: int | None = None) -> dict[str, float]:
        """The spent share of each budget that is set."""
        settings = self._settings
        used = {
            "steps": (self.steps if steps is None else steps, settings.steps),
            "num_episodes": (self.episodes, settings.num_episodes),
            "duration": (self.seconds / 3600.0, settings.duration),
        }
        return {name: amount / limit for name, (amount, limit) in used.items() if limit is not None}

    def state(self) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "episodes": self.episodes,
            "lost": self.lost,
            "seconds": self.seconds,
            "seconds_aside": self._seconds_aside,
            "returns": list(self._returns),
            "lengths": list(self._lengths),
            "numbers": {key: list(numbers) for key, numbers in self._numbers.items()},
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a state, also from another process."""
        self._seconds_before = state["seconds"]
        self._seconds_aside = state.get("seconds_aside", 0.0)
        self.begin()
        self.count_as(state)

    def count_as(self, state: dict[str, Any]) -> None:
        """Restore steps and episodes. The clock keeps running."""
        self.steps, self.episodes = state["steps"], state["episodes"]
        self.lost = state.get("lost", 0)  # older versions did not record them
        saved = state.get("numbers", {})  # nor these
        kept: list[tuple[deque[Any], Sequence[Any]]] = [
            (self._returns, state["returns"]),
            (self._lengths, state["lengths"]),
            *((numbers, saved.get(key, ())) for key, numbers in self._numbers.items()),
        ]
        for recent, before in kept:
            recent.clear()
            recent.extend(before)


class TimeShares:
    """Time shares of an update: environments, acting, learning, waiting, the rest."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._last = time.perf_counter()

    def shares(self, rollout_seconds: Any, waited: float, learning: float, steps: int) -> dict[str, float]:
        """Shares of the time since the last call.

        The time that the learner waits for workers is split like the workers' own time: environments, policy, and idle
        (waiting for other workers, messages). Work that overlaps with learning is not counted twice.
        """
        now = time.perf_counter()
        total = max(now - self._last, 1e-9)
        self._last = now
        stepping, acting = (float(part) / self._workers for part in rollout_seconds.sum(axis=0))
        busy = max(stepping + acting, 1e-9)
        seen = min(1.0, waited / busy)  # share of the workers' time that the learner waited for
        shares = {
            "time/environment": stepping * seen / total,
            "time/acting": acting * seen / total,
            "time/learning": learning / total,
            "time/waiting": max(0.0, waited - busy * seen) / total,
        }
        return {
            "time/fps": steps / total,
            **shares,
            "time/rest": max(0.0, 1.0 - sum(shares.values())),
            # Collecting alone: the throughput of the workers, and the cost of a step in one of them.
            "rollout/experiences_per_second": steps / busy,
            "rollout/seconds_per_step": float(rollout_seconds[:, 0].sum()) / max(steps, 1),
        }
