"""Schedules: when rollouts are collected, and with which weights.

`sync` collects, learns, repeats: every rollout uses the newest weights. `overlap` collects rollout k + 1 while the
learner uses rollout k, so it uses the weights before that update. The lag is always exactly one, whatever the timing,
so the same seed gives the same weights. `async` is in `envfleet.rollout.async_schedule`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from envfleet.rollout.arrays import Rollout
from envfleet.rollout.collectors import Collector

__all__ = ["SCHEDULES", "Schedule"]

Array = np.ndarray[Any, Any]
SCHEDULES = {"sync": 0, "overlap": 1, "async": 1}  # lag of the weights, in rollouts; with async at least this


class Schedule:
    """Returns rollouts in order, each collected with the weights that the schedule prescribes."""

    saves_simulators = True  # between two rollouts they can be saved, for an exact resume

    def __init__(self, collector: Collector, weights: Callable[[], Array], *, lag: int) -> None:
        self._collector, self._weights, self.lag = collector, weights, lag
        self.number = 0  # of the next rollout that `next` returns
        self._begun = False  # whether that rollout is being collected
        self._ready: Rollout | None = None  # that rollout, once it is collected
        self.waited = 0.0  # seconds spent waiting, until the caller resets it
        self.until = math.inf  # when rollouts are abandoned (`time.monotonic`)

    def next(self) -> Rollout:
        """Return the next rollout. With a lag, start the one after it first."""
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
        """Wait until no rollout is being collected, so that a checkpoint can be saved."""
        if self._begun:
            began = time.perf_counter()
            self._begun = False  # even if `finish` fails
            self._ready = self._collector.finish()
            self.waited += time.perf_counter() - began

    @property
    def idle(self) -> bool:
        """Whether no rollout is being collected, so that simulators can return their state."""
        return not self._begun

    @property
    def collected(self) -> Rollout | None:
        """The rollout that is collected but not yet returned by `next`."""
        return self._ready

    def _begin(self) -> None:
        self._collector.publish(self._weights())
        self._collector.begin(self.number, self.until)
        self._begun = True

    def metrics(self) -> dict[str, float]:
        """Metrics of the last rollout that depend on the schedule: none, the lag is known."""
        return {}

    def state(self) -> dict[str, Any]:
        return {"number": self.number, "collected": self._ready is not None}

    def resume(self, state: Mapping[str, Any]) -> None:
        """Continue before the rollout of the state; if it was collected, its arrays have been restored."""
        self.number = state["number"]
        self._ready = self._collector.collected(self.number) if state["collected"] else None
