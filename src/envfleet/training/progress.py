"""How far a training is: its budget, its episodes, and where its time goes."""

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

RECENT, LATEST = 100, 10  # episodes that the means of returns are over


class Progress:
    """Counts steps and episodes against the budget; whichever limit comes first ends the training."""

    def __init__(self, settings: TrainingSettings) -> None:
        self._settings = settings
        self.steps = 0
        self.episodes = 0
        self._seconds_before = 0.0  # of the processes before this one, where the run was resumed
        self._began = time.monotonic()
        self._seconds_aside = 0.0  # spent on evaluations and checkpoints
        self._returns: deque[float] = deque(maxlen=RECENT)
        self._lengths: deque[int] = deque(maxlen=RECENT)
        self._numbers: dict[str, deque[float]] = {  # of infos, by key
            key: deque(maxlen=RECENT) for key in followed(settings.log_info)
        }

    def begin(self) -> None:
        """The clock of the budget starts now."""
        self._began = time.monotonic()

    def add(self, rollout: Rollout) -> list[tuple[float, int]]:
        """Counts a rollout; the episodes that ended in it."""
        self.steps += rollout.rewards.size
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
        """Spent on the run, by a clock that does not jump."""
        return self._seconds_before + time.monotonic() - self._began

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What happens here is neither collecting nor learning: evaluating, saving."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._seconds_aside += time.monotonic() - began

    @property
    def seconds_trained(self) -> float:
        """Spent on collecting and learning."""
        return self.seconds - self._seconds_aside

    @property
    def until(self) -> float:
        """When the hours of a timed run are over, by `time.monotonic()`."""
        if self._settings.duration is None:
            return math.inf
        return self._began + self._settings.duration * 3600.0 - self._seconds_before

    @property
    def time_left(self) -> float:
        """Seconds until then."""
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
        """The mean of each number of infos over the last episodes, and the share of them that were a success."""
        figures = {f"info/{name}": mean for name, mean in means(self._numbers).items()}
        succeeded = successes(self._numbers)
        return figures if succeeded is None else {"rollout/success_rate": fmean(succeeded), **figures}

    @property
    def without_numbers(self) -> list[str]:
        """The keys of log_info under which none of the last episodes had a number."""
        asked = self._settings.log_info if self._returns else ()
        return [key for key in asked if all(math.isnan(value) for value in self._numbers[key])]

    @property
    def share(self) -> float:
        """The share of the budget that is used up, 0 to 1: what the schedules of rates follow.

        Of several budgets the steps count, or else the episodes: they come out the same wherever a run is trained,
        and the clock does not.
        """
        return min(1.0, next(iter(self._shares())))

    @property
    def spent_share(self) -> float:
        """How near the end is, 0 to 1: the share of the budget that is used up furthest."""
        return self.spent_share_at(self.steps)

    def spent_share_at(self, steps: int) -> float:
        """The same if so many steps had been counted."""
        return min(1.0, max(self._shares(steps)))

    @property
    def spent(self) -> bool:
        return max(self._shares()) >= 1.0

    def _shares(self, steps: int | None = None) -> list[float]:
        settings = self._settings
        hours = self.seconds / 3600.0
        steps = self.steps if steps is None else steps
        used = ((steps, settings.steps), (self.episodes, settings.num_episodes), (hours, settings.duration))
        return [amount / limit for amount, limit in used if limit is not None]

    def state(self) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "episodes": self.episodes,
            "seconds": self.seconds,
            "seconds_aside": self._seconds_aside,
            "returns": list(self._returns),
            "lengths": list(self._lengths),
            "numbers": {key: list(numbers) for key, numbers in self._numbers.items()},
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on from a state, of another process too."""
        self._seconds_before = state["seconds"]
        self._seconds_aside = state.get("seconds_aside", 0.0)
        self.begin()
        self.count_as(state)

    def count_as(self, state: dict[str, Any]) -> None:
        """Steps and episodes as they were; the clock goes on."""
        self.steps, self.episodes = state["steps"], state["episodes"]
        saved = state.get("numbers", {})  # a run of an older version has none
        kept: list[tuple[deque[Any], Sequence[Any]]] = [
            (self._returns, state["returns"]),
            (self._lengths, state["lengths"]),
            *((numbers, saved.get(key, ())) for key, numbers in self._numbers.items()),
        ]
        for recent, before in kept:
            recent.clear()
            recent.extend(before)


class TimeShares:
    """Where the time of an update goes: environments, acting, learning, waiting, the rest."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._last = time.perf_counter()

    def shares(self, rollout_seconds: Any, waited: float, learning: float, steps: int) -> dict[str, float]:
        """Shares of the time since the last call.

        Where the learner waits for the workers, that time is split as theirs was: in environments, in the
        policy, and idle (one worker waiting for another, messages). What overlaps with learning is not counted twice.
        """
        now = time.perf_counter()
        total = max(now - self._last, 1e-9)
        self._last = now
        stepping, acting = (float(part) / self._workers for part in rollout_seconds.sum(axis=0))
        busy = max(stepping + acting, 1e-9)
        seen = min(1.0, waited / busy)  # how much of the workers' time the learner waited for
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
            # Of collecting alone: what the workers manage while they are at it, and what a step costs one of them.
            "rollout/experiences_per_second": steps / busy,
            "rollout/seconds_per_step": float(rollout_seconds[:, 0].sum()) / max(steps, 1),
        }
