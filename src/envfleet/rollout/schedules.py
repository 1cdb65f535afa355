"""Schedules: which weights collect which rollout, and when.

`sync` collects, learns, repeats: every rollout comes from the newest weights. `overlap` lets rollout k + 1 be
collected while rollout k is learned from, so it comes from the weights before that: the lag is exactly one,
whatever the timing, and the same seed gives the same weights.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from envfleet.rollout.arrays import Rollout
from envfleet.rollout.collectors import Collector

__all__ = ["SCHEDULES", "Schedule"]

Array = np.ndarray[Any, Any]
SCHEDULES = {"sync": 0, "overlap": 1}  # rollouts by which the weights lag


class Schedule:
    """Hands out rollouts in order, each collected with the weights that the schedule allows it."""

    def __init__(self, collector: Collector, weights: Callable[[], Array], *, lag: int) -> None:
        self._collector, self._weights, self.lag = collector, weights, lag
        self.number = 0  # of the next rollout to hand out
        self._begun = False  # it is under way
        self._ready: Rollout | None = None  # it is collected
        self.waited = 0.0  # seconds, since the last look
        self.until = math.inf  # when rollouts are given up (`time.monotonic`)

    def next(self) -> Rollout:
        """The next rollout; with a lag, the one after it begins before this returns."""
        if self._ready is None and not self._begun:
            self._begin()
        self.settle()
        rollout = self._ready
        assert rollout is not None
        self._ready = None
        self.number += 1
        if self.lag:
            self._begin()
        return rollout

    def settle(self) -> None:
        """Waits until nothing is under way: the moment to save."""
        if self._begun:
            began = time.perf_counter()
            self._begun = False  # if it fails, too
            self._ready = self._collector.finish()
            self.waited += time.perf_counter() - began

    @property
    def idle(self) -> bool:
        """Nothing is under way, so that simulators can be asked for their state."""
        return not self._begun

    @property
    def collected(self) -> Rollout | None:
        """The rollout that was collected and not handed out yet."""
        return self._ready

    def _begin(self) -> None:
        self._collector.publish(self._weights())
        self._collector.begin(self.number, self.until)
        self._begun = True

    def resume(self, number: int, *, collected: bool) -> None:
        """Goes on before rollout `number`; `collected` where its arrays were put back as they were."""
        self.number = number
        self._ready = self._collector.collected(number) if collected else None
