"""Where workers run: each on a core of its own, without being bound to it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence

from envfleet.fleet.portable import uses_linux

__all__ = ["OwnCore", "own_core"]


class OwnCore:
    """Lets a worker that finds itself on one core with another worker move to its own.

    To the scheduler, a caller that watches memory is as busy as a worker: it may leave one core to the caller and run
    two workers on the other for seconds. After the move it is free again to put the worker wherever it likes.
    """

    def __init__(self, words: memoryview[int], places: Sequence[int], index: int, home: int) -> None:
        self._words, self._own, self._home = words, places[index], home
        self._others = [place for place in places if place != self._own]
        self._current_core = ctypes.CDLL(None).sched_getcpu

    def keep(self) -> None:
        """Moves to the worker's own core where another worker runs on this one."""
        words, core = self._words, self._current_core()
        words[self._own] = core + 1
        if core != self._home and core + 1 in [words[other] for other in self._others]:
            self._go_home()

    def _go_home(self) -> None:
        allowed = os.sched_getaffinity(0)
        if self._home in allowed:  # nobody has taken it away since
            os.sched_setaffinity(0, {self._home})
            os.sched_setaffinity(0, allowed)


def own_core(words: memoryview[int], places: Sequence[int], index: int) -> OwnCore | None:
    """The core of worker `index`; None where it is alone, or where there are fewer cores than workers.

    `places` are the words in which the workers say on which core they are, and one more: 0 is unknown.
    """
    cores = sorted(os.sched_getaffinity(0)) if uses_linux() else []
    return OwnCore(words, places, index, cores[index]) if 1 < len(places) <= len(cores) else None
