"""Waiting for workers: the caller spins on the control words if waits are usually short, otherwise it sleeps.

While the caller wakes up, all workers are idle, so it spins instead of sleeping if the wait is usually short. When it
sleeps, the workers see how many commands they must finish in total before one of them rings the caller, because a
wake-up costs more than a step of many environments. A few times per second it looks for workers that died or hang.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from envfleet.fleet.backends.base import Backend
from envfleet.fleet.control import Control, WorkerWord
from envfleet.fleet.os_compat import yield_core
from envfleet.fleet.spec import Timeouts
from envfleet.fleet.watch import ProgressWatch

__all__ = ["Waiter"]

SPIN_SECONDS = 0.002  # if waits are usually shorter than this, the caller spins instead of sleeping


class Waiter:
    """Waits until commands are finished; `repair` restarts workers that the watch finds dead or hung."""

    def __init__(
        self, backend: Backend, control: Control, timeouts: Timeouts, repair: Callable[[ProgressWatch], None]
    ) -> None:
        self._backend, self._timeouts, self._repair = backend, timeouts, repair
        self._words, self._waits = control.words, control.caller_waits
        self._worker_words = [control.worker(w, WorkerWord.POSTED) for w in range(control.workers)]
        self._usual_wait = 0.0

    def wait_all(self, seconds: float | None = None) -> bool:
        """Wait until every posted command is finished, at most `seconds`; return whether they all are."""
        self._backend.run_inline(self._timeouts)
        began = time.monotonic()
        until = math.inf if seconds is None else began + seconds
        spins = self._backend.spins and self._usual_wait < SPIN_SECONDS
        spun = spins and self._spin(min(until, began + 2 * SPIN_SECONDS))
        finished = spun or self._sleep(self._unfinished, until)
        self._usual_wait += 0.05 * (time.monotonic() - began - self._usual_wait)
        return finished

    def sleep_all(self, until: float, waiting: Callable[[], None] | None) -> bool:
        """As `wait_all`, for commands that take long: never spins, and calls `waiting` a few times per second."""
        self._backend.run_inline(self._timeouts)
        return self._sleep(self._unfinished, until, waiting)

    def sleep(self, lacking: Callable[[], int]) -> None:
        """Sleep until `lacking()` is 0. It returns the minimum number of commands that must still finish."""
        self._backend.run_inline(self._timeouts)
        self._sleep(lacking)

    def _unfinished(self) -> int:
        """Number of posted commands that are not finished."""
        words, count = self._words, 0
        for line in self._worker_words:
            count += words[line] - words[line + WorkerWord.FINISHED]
        return count

    def _spin(self, until: float) -> bool:
        words = self._words
        for line in self._worker_words:
            posted = words[line]
            while words[line + WorkerWord.FINISHED] != posted:
                yield_core()
                if time.monotonic() > until:
                    return False
        return True

    def _sleep(
        self, lacking: Callable[[], int], until: float = math.inf, waiting: Callable[[], None] | None = None
    ) -> bool:
        """Sleep until `lacking()` is 0; return False if the time `until` (`time.monotonic`) comes first."""
        words, watch = self._words, None
        try:
            while True:
                finished = 0
                for line in self._worker_words:
                    finished += words[line + WorkerWord.FINISHED]
                count = lacking()
                if count == 0:
                    return True
                left = until - time.monotonic()
                if left <= 0:
                    return False
                words[self._waits] = finished + count
                if lacking() == 0:  # they finished before they saw that the caller waits
                    return True
                watch = watch or ProgressWatch(words, self._worker_words, self._timeouts, self._backend.sign_seconds)
                if self._backend.wait(min(watch.look_every, left)):
                    continue
                words[self._waits] = 0
                self._repair(watch)
                if waiting is not None:
                    waiting()
        finally:
            words[self._waits] = 0
