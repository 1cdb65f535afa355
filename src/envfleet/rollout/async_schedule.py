"""The asynchronous schedule: workers collect without waiting, and the learner takes rollouts as they finish.

Each batch has as many groups as the fleet, in the order in which their workers finished them, so it may hold two
rollouts of a fast worker and none of a slow one. Its rollouts were collected with weights of different versions. The
*lag* of a rollout is the number of updates since its weights were published. Rollouts with more than `max_lag` are
dropped; their steps are counted, and they do not count towards the budget.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from envfleet.rollout.arrays import Rollout
from envfleet.rollout.batches import RolloutBatch
from envfleet.rollout.order import OrderWriter
from envfleet.rollout.worker_rollouts import WorkerRollout, WorkerRollouts

__all__ = ["AsyncCollector", "AsyncSchedule"]

Array = np.ndarray[Any, Any]


class AsyncSchedule:
    """Returns batches of the rollouts that finish first; the interface is that of `Schedule`."""

    saves_simulators = False  # they are always in the middle of a rollout

    def __init__(
        self,
        workers: WorkerRollouts,
        batch: RolloutBatch,
        weights: Callable[[], Array],
        *,
        max_lag: int | None,
    ) -> None:
        """`max_lag` is None if no rollout is too old, for learners with a replay buffer."""
        self._workers, self._batch, self._weights, self._max_lag = workers, batch, weights, max_lag
        self.number = 0  # of the next batch, and the version of the newest weights
        self.waited = 0.0  # seconds spent waiting, until the caller resets it
        self.until = math.inf  # when rollouts are abandoned (`time.monotonic`)
        self._order: OrderWriter | None = None
        self.collected: Rollout | None = None  # no batch is kept between two updates
        self._partly: list[tuple[WorkerRollout, list[int]]] = []  # taken, with groups that did not fit into the batch
        self._dropped = 0  # steps
        self._lags = np.zeros(1)

    def next(self) -> Rollout:
        """Publish the weights and return a batch of the rollouts that are ready first."""
        self._workers.publish(self._weights(), self.number)
        self._batch.clear()
        partly, self._partly = self._partly, []
        for rollout, groups in partly:
            self._enter(rollout, groups)
        taken, lost = [], 0
        while not self._batch.full:
            began = time.perf_counter()
            rollout = self._workers.next(self.until)
            self.waited += time.perf_counter() - began
            groups = list(self._workers.groups[rollout.worker])
            taken.append(rollout)
            lost += self._batch.lost_steps(self._workers.arrays, rollout.buffer, groups)
            self._enter(rollout, groups)
        batch = self._batch.rollout(self.number)
        assert batch.versions is not None
        self._lags = self.number - batch.versions
        if self._order is not None:
            self._order.write(self.number, taken, lost)
        self.number += 1
        return batch

    def _enter(self, rollout: WorkerRollout, groups: list[int]) -> None:
        """Put groups of a rollout into the batch, as far as they fit; drop the rollout if it is too old."""
        if self._max_lag is not None and self.number - rollout.version > self._max_lag:
            self._dropped += self._batch.steps_of(groups)
            groups = []
        arrays = self._workers.arrays
        left = [group for group in groups if not self._batch.add(arrays, rollout.buffer, group, rollout.version)]
        if left:
            self._partly.append((rollout, left))
        else:
            self._workers.release(rollout)

    def record_to(self, path: Path) -> None:
        """Write to this file which rollouts enter which update, from the next one on."""
        self._order = OrderWriter(path, self._workers.groups, self.number)

    def settle(self) -> None:
        """Wait until no worker is collecting, so that environments can be called."""
        self._workers.settle()

    @property
    def idle(self) -> bool:
        """Whether a checkpoint can be saved: always, because it does not include the simulators."""
        return True

    def metrics(self) -> dict[str, float]:
        """Lag of the steps of the last batch, and the steps dropped so far."""
        return {
            "lag/mean": float(self._lags.mean()),
            "lag/p95": float(np.percentile(self._lags, 95, method="inverted_cdf")),
            "lag/max": float(self._lags.max()),
            "lag/dropped_steps": float(self._dropped),
        }

    def state(self) -> dict[str, Any]:
        """State for a resumed run: numbers that key random streams must not be used twice."""
        return {
            "number": self.number,
            "collected": False,
            "next_rollout": self._workers.next_number,
            "dropped": self._dropped,
        }

    def resume(self, state: Mapping[str, Any]) -> None:
        """Continue before the batch of the state; its workers begin fresh episodes."""
        self.number, self._dropped = state["number"], state["dropped"]
        self._workers.resume(state["next_rollout"])


class AsyncCollector:
    """The worker rollouts and their batch, as the training loop sees a collector."""

    def __init__(self, workers: WorkerRollouts, batch: RolloutBatch) -> None:
        self._workers, self._batch = workers, batch
        self.arrays = workers.arrays

    @property
    def while_waiting(self) -> Callable[[], None] | None:
        return self._workers.while_waiting

    @while_waiting.setter
    def while_waiting(self, call: Callable[[], None] | None) -> None:
        self._workers.while_waiting = call

    @property
    def steps_so_far(self) -> int:
        """Steps of the batch that is being filled."""
        return self._batch.steps

    def close(self) -> None:
        self._workers.close()
