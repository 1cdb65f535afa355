"""Keeps workers on separate cores without pinning them."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence

from envfleet.fleet.os_compat import uses_linux

__all__ = ["OwnCore", "own_core"]


class OwnCore:
    """Moves a worker to its own core if it shares a core with another worker.

    To the scheduler, a spinning caller is as busy as a worker. So it may leave one core to the caller and run two
    workers on another one for seconds. After the move the scheduler may again place the worker on any core.
    """

    def __init__(self, words: memoryview[int], places: Sequence[int], index: int, home: int) -> None:
        self._words, self._own, self._home = words, places[index], home
        self._others = [place for place in places if place != self._own]
        self._current_core = ctypes.CDLL(None).sched_getcpu

    def keep(self) -> None:
        """Move to the worker's own core if another worker runs on the current one."""
        words, core = self._words, self._current_core()
        words[self._own] = core + 1
        if core != self._home and core + 1 in [words[other] for other in self._others]:
            self._go_home()

    def _go_home(self) -> None:
        allowed = os.sched_getaffinity(0)
        if self._home in allowed:  # the affinity may have changed since
            os.sched_setaffinity(0, {self._home})
            os.sched_setaffinity(0, allowed)


def own_core(words: memoryview[int], places: Sequence[int], index: int) -> OwnCore | None:
    """Return the OwnCore of worker `index`; None if it is the only worker, or if there are fewer cores than workers.

    `places` are the indices of the words that hold 1 + the core of each worker; 0 means unknown.
    """
    cores = sorted(os.sched_getaffinity(0)) if uses_linux() else []
    return OwnCore(words, places, index, cores[index]) if 1 < len(places) <= len(cores) else None
