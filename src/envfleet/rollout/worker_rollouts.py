"""Rollouts of single workers, for the asynchronous schedule: no worker waits for another.

A worker collects one rollout at a time. Finished rollouts wait for the learner, each in its own buffer. As soon as a
worker finishes a rollout, it begins the next one with the newest published weights, unless all of its buffers wait.

`StreamedRollouts` does this with one thread, the only one that talks to the fleet while workers collect. The learner's
thread takes finished rollouts from a queue and gives their buffers back. Each worker has its own copy of the weights in
the block, which is written while the worker is idle, before its request is posted. So no worker ever reads half-written
weights, and a worker that is restarted in the middle of a rollout finds the same weights again.

`InlineRollouts` collects in the learner's own thread, for the sequential backend: collecting and learning take turns.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from envfleet.clock import GRACE_SECONDS, deadline_of_workers
from envfleet.errors import OutOfTimeError
from envfleet.fleet.fleet import Fleet
from envfleet.rollout.acting import RolloutRequest
from envfleet.rollout.routine import ActingRoutine

__all__ = ["InlineRollouts", "OnDemand", "StreamedRollouts", "WorkerRequests", "WorkerRollout", "WorkerRollouts"]

Array = np.ndarray[Any, Any]
_WAIT_SECONDS = 0.25  # how often a waiting learner calls `while_waiting`
_CLOSE_SECONDS = 2.0  # how long the thread may take to end; it may be restarting a worker


class WorkerRollout(NamedTuple):
    """One finished rollout of the groups of one worker."""

    worker: int
    number: int  # counts the rollouts of this worker
    version: int  # of the weights: the number of updates that they have had
    buffer: int


class WorkerRollouts(Protocol):
    """Collects rollouts worker by worker."""

    arrays: Mapping[str, Array]
    groups: Sequence[Sequence[int]]  # of each worker
    while_waiting: Callable[[], None] | None  # called regularly while `next` waits, in the waiting thread

    def publish(self, weights: Array, version: int) -> None:
        """Set the weights for rollouts that begin from now on."""

    def next(self, until: float = math.inf) -> WorkerRollout:
        """Return the rollout that finished first; raise OutOfTimeError at the time `until` (`time.monotonic`)."""

    def release(self, rollout: WorkerRollout) -> None:
        """Let the rollout's buffer be used again."""

    def settle(self) -> None:
        """Wait until no worker is collecting; `next` starts them again."""

    @property
    def next_number(self) -> int:
        """A number above that of any rollout so far."""

    def resume(self, number: int) -> None:
        """Give the next rollouts of all workers this number."""

    def close(self) -> None: ...


class WorkerRequests:
    """Asks single workers for rollouts; `groups` are those of each worker (default: as in the fleet)."""

    def __init__(
        self, fleet: Fleet, routine: ActingRoutine, seed: int, groups: Sequence[Sequence[int]] | None = None
    ) -> None:
        self.fleet, self._routine, self._seed = fleet, routine, seed
        self.groups = fleet.groups_of_workers if groups is None else groups
        self.worker_of = {group: worker for worker, groups in enumerate(self.groups) for group in groups}
        self.arrays: Mapping[str, Array] = fleet.routine_arrays
        self.steps, self.buffers = routine.steps, routine.buffers

    def begin(
        self,
        worker: int,
        number: int,
        weights: Array,
        until: float = math.inf,
        each_step: Callable[[], None] | None = None,
    ) -> int:
        """Start a rollout of an idle worker and return its buffer."""
        groups, buffer = self.groups[worker], number % self.buffers
        self.arrays["weights"][worker] = weights
        self.arrays["progress"][list(groups)] = 0
        theirs = deadline_of_workers(until, self.fleet.hosts)
        request = RolloutRequest(number, buffer, self.steps, self._seed, theirs, each_step, worker)
        self.fleet.run_async(request, buffer, groups, weight_set=worker)
        return buffer

    def collect(self, worker: int, number: int, weights: Array, until: float, waiting: Any = None) -> int:
        """Collect a rollout of a worker in this thread, or wait for it; return its buffer.

        Raise OutOfTimeError shortly after the time `until` (`time.monotonic`).
        """

        def is_late() -> bool:
            return time.monotonic() >= until + GRACE_SECONDS

        buffer = self.begin(worker, number, weights, until, waiting if self.fleet.backend == "sequential" else None)
        left = set(self.groups[worker])
        while left:
            left.difference_update(self.fleet.run_first(self.steps, is_late))
            if left and is_late():
                raise OutOfTimeError
        return buffer


class OnDemand:
    """Base of sources that collect a rollout only when `next` is called; nothing runs in between."""

    def release(self, rollout: WorkerRollout) -> None:
        """Do nothing: the next rollout has not begun."""

    def settle(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing: the fleet is closed by its owner."""


class InlineRollouts(OnDemand):
    """Collects one rollout of one worker at a time, when the learner asks for it."""

    def __init__(self, requests: WorkerRequests) -> None:
        self._requests = requests
        self.arrays, self.groups = requests.arrays, requests.groups
        self.while_waiting: Callable[[], None] | None = None
        self._newest: tuple[Array, int] | None = None
        self._begun, self._first = 0, 0

    def publish(self, weights: Array, version: int) -> None:
        self._newest = (weights.copy(), version)

    def next(self, until: float = math.inf) -> WorkerRollout:
        assert self._newest is not None, "published before the first rollout"
        turn, worker = divmod(self._begun, len(self.groups))
        weights, version = self._newest
        number = self._first + turn
        buffer = self._requests.collect(worker, number, weights, until, self.while_waiting)
        self._begun += 1
        return WorkerRollout(worker, number, version, buffer)

    @property
    def next_number(self) -> int:
        return self._first + -(-self._begun // len(self.groups))

    def resume(self, number: int) -> None:
        self._begun, self._first = 0, number


class StreamedRollouts:
    """Lets all workers collect all the time, by a thread that starts each worker again as soon as it finishes."""

    def __init__(self, requests: WorkerRequests) -> None:
        self._requests, self._fleet = requests, requests.fleet
        self.arrays, self.groups = requests.arrays, requests.groups
        self.while_waiting: Callable[[], None] | None = None
        self._newest: tuple[Array, int] | None = None  # replaced as a whole, never written to
        # All below are guarded by the condition.
        self._changed = threading.Condition()
        self._numbers = [0] * len(self.groups)  # of each worker's next rollout
        self._held = [0] * len(self.groups)  # buffers of each worker in use
        self._running: dict[int, tuple[WorkerRollout, set[int]]] = {}  # and the groups that have not finished
        self._ready: deque[WorkerRollout] = deque()
        self._beginning = False  # the thread is starting rollouts that are not in `_running` yet
        self._paused, self._closed, self._disturbed = True, False, False
        self._until = math.inf
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def publish(self, weights: Array, version: int) -> None:
        self._newest = (weights.copy(), version)

    def next(self, until: float = math.inf) -> WorkerRollout:
        assert self._newest is not None, "published before the first rollout"
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="envfleet-collector", daemon=True)
            self._thread.start()
        with self._changed:
            self._until = until
            if self._paused:
                self._paused = False
                self._disturb()
        while time.monotonic() < until + GRACE_SECONDS:
            with self._changed:
                looks = self.while_waiting is not None or until < math.inf
                self._changed.wait_for(lambda: self._ready or self._error, _WAIT_SECONDS if looks else None)
                if self._ready:
                    return self._ready.popleft()
                if self._error is not None:
                    raise self._error
            if self.while_waiting is not None:
                self.while_waiting()
        raise OutOfTimeError

    def release(self, rollout: WorkerRollout) -> None:
        with self._changed:
            self._held[rollout.worker] -= 1
            if rollout.worker not in self._running:  # it has been waiting for a buffer
                self._disturb()

    def settle(self) -> None:
        with self._changed:
            self._paused = True
            self._disturb()
            self._changed.wait_for(lambda: not (self._running or self._beginning) or self._error)
            if self._error is not None:
                raise self._error

    @property
    def next_number(self) -> int:
        with self._changed:
            return max(self._numbers)

    def resume(self, number: int) -> None:
        with self._changed:
            self._numbers = [number] * len(self.groups)

    def close(self) -> None:
        if self._thread is None or self._closed:
            return
        with self._changed:
            self._closed = True
            self._disturb()
        self._thread.join(_CLOSE_SECONDS)

    # --- the thread

    def _disturb(self) -> None:
        """Make the thread check for changes."""
        self._disturbed = True
        self._changed.notify_all()
        self._fleet.interrupt()

    def _serve(self) -> None:
        try:
            while self._begin_rollouts():
                for group in self._fleet.run_first(self._requests.steps, lambda: self._disturbed):
                    self._finish(group)
        except BaseException as error:  # noqa: BLE001  # raised in the learner's thread
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _begin_rollouts(self) -> bool:
        """Start every idle worker that has a free buffer; sleep if none can start or run. False after `close`."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._running or self._startable())
            self._disturbed = False
            if self._closed:
                return False
            startable, until = self._startable(), self._until
            self._beginning = bool(startable)
        for worker in startable:
            assert self._newest is not None
            weights, version = self._newest
            number = self._numbers[worker]
            buffer = self._requests.begin(worker, number, weights, until)
            with self._changed:
                self._numbers[worker] += 1
                self._held[worker] += 1
                rollout = WorkerRollout(worker, number, version, buffer)
                self._running[worker] = (rollout, set(self.groups[worker]))
        with self._changed:
            self._beginning = False
            self._changed.notify_all()
        return True

    def _startable(self) -> list[int]:
        if self._paused:
            return []
        free = self._requests.buffers
        return [w for w, held in enumerate(self._held) if held < free and w not in self._running]

    def _finish(self, group: int) -> None:
        worker = self._requests.worker_of[group]
        with self._changed:
            rollout, left = self._running[worker]
            left.discard(group)
            if not left:
                del self._running[worker]
                self._ready.append(rollout)
                self._changed.notify_all()
