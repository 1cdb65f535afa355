"""Statistics of a fleet: episodes, speed, and its workers."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from envfleet.fleet.arrays import FleetArrays
from envfleet.fleet.lifecycle import WorkerLoad

__all__ = ["FleetStatistics", "StatisticsKeeper", "WorkerStatistics"]

RECENT = 100


@dataclass(frozen=True)
class WorkerStatistics:
    """Statistics of one worker since the fleet was made; `busy_share` is since the last call of `statistics()`."""

    index: int
    pid: int
    busy_share: float
    restarts: int
    memory_mb: float  # private memory of its process


@dataclass(frozen=True)
class FleetStatistics:
    """Statistics since the fleet was made; returns, lengths and seconds are those of the last 100 finished episodes."""

    steps: int
    episodes: int
    seconds: float
    steps_per_second: float  # since the last call of `statistics()`
    returns: list[float]
    lengths: list[int]
    episode_seconds: list[float]
    workers: list[WorkerStatistics]

    @property
    def restarts(self) -> int:
        return sum(worker.restarts for worker in self.workers)


class StatisticsKeeper:
    """Collects the statistics of a fleet."""

    def __init__(self, arrays: FleetArrays) -> None:
        self._columns = [a.data for a in (arrays.episode_return, arrays.episode_length, arrays.episode_seconds)]
        self.steps = 0
        self._episodes = 0
        self._recent: deque[tuple[float, int, float]] = deque(maxlen=RECENT)
        self._began = self._last_look = time.perf_counter()
        self._steps_at_last_look = 0
        self._busy_at_last_look: dict[int, int] = {}

    def episodes(self, envs: list[int]) -> None:
        """Record the episodes of these environments, which have just ended."""
        returns, lengths, seconds = self._columns
        self._recent.extend([(returns[env], lengths[env], seconds[env]) for env in envs[-RECENT:]])
        self._episodes += len(envs)

    def summary(self, loads: list[WorkerLoad]) -> FleetStatistics:
        now = time.perf_counter()
        elapsed = max(now - self._last_look, 1e-9)
        workers = []
        for index, load in enumerate(loads):
            before = self._busy_at_last_look.get(index, 0)
            self._busy_at_last_look[index] = load.busy_ns
            share = min(1.0, max(0, load.busy_ns - before) / 1e9 / elapsed)
            workers.append(WorkerStatistics(index, load.pid, share, load.restarts, load.memory / 2**20))
        speed = (self.steps - self._steps_at_last_look) / elapsed
        self._last_look, self._steps_at_last_look = now, self.steps
        returns, lengths, seconds = zip(*self._recent, strict=True) if self._recent else ((), (), ())
        return FleetStatistics(
            self.steps,
            self._episodes,
            now - self._began,
            speed,
            list(returns),
            list(lengths),
            list(seconds),
            workers,
        )
