"""Detects hung workers: they have work but make no progress within the time limit of the current operation."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from envfleet.fleet.control import Phase, WorkerWord
from envfleet.fleet.spec import Timeouts

__all__ = ["Hang", "ProgressWatch", "WatchClock", "limit_of"]

LOOK_SECONDS = 0.25  # how often a sleeping caller checks for deaths and hangs
LONGEST_GAP = 2.0  # seconds; more than any watcher waits between two looks


@dataclass(frozen=True)
class Hang:
    """A worker that made no progress for longer than its limit."""

    worker: int
    operation: str  # "step" or "reset"
    limit: float


def limit_of(phase: int, timeouts: Timeouts) -> tuple[str, float | None]:
    """The operation of a worker in this phase, and its time limit."""
    return ("step", timeouts.step) if phase == Phase.STEP else ("reset", timeouts.start)


class WatchClock:
    """Seconds that a watcher has watched. A longer gap between two looks counts as `LONGEST_GAP`.

    Ctrl-Z stops caller and workers together. When they continue, no worker had the time that has passed meanwhile.
    """

    def __init__(self) -> None:
        self._seconds, self._last = 0.0, time.monotonic()

    def look(self) -> float:
        """Return the seconds watched up to this look."""
        now = time.monotonic()
        self._seconds += min(now - self._last, LONGEST_GAP)
        self._last = now
        return self._seconds


class ProgressWatch:
    """Remembers the progress of each worker (environment, counts, phase), and since when it has not changed."""

    def __init__(
        self, words: memoryview[int], worker_words: Sequence[int], timeouts: Timeouts, sign_seconds: float = 0.0
    ) -> None:
        """`sign_seconds` is how old the progress in the words may be."""
        self._words, self._worker_words, self._timeouts = words, worker_words, timeouts
        self._sign_seconds = sign_seconds
        limits = [limit / 4 for limit in (timeouts.step, timeouts.start) if limit is not None]
        self.look_every = min([LOOK_SECONDS, *limits])
        self._clock = WatchClock()
        self._seen: dict[int, tuple[tuple[int, ...], float]] = {}

    def stuck(self) -> Iterator[Hang]:
        """Yield the workers that made no progress for longer than their limit."""
        words, now = self._words, self._clock.look()
        for worker, line in enumerate(self._worker_words):
            finished = words[line + WorkerWord.FINISHED]
            operation, limit = limit_of(words[line + WorkerWord.PHASE], self._timeouts)
            if limit is None or finished == words[line + WorkerWord.POSTED]:
                self._seen.pop(worker, None)
                continue
            progress = (finished, *(words[line + word] for word in _SIGNS_OF_LIFE))
            seen, since = self._seen.get(worker, (None, now))
            if progress != seen:
                self._seen[worker] = (progress, now)
            elif now - since > limit + self._sign_seconds:
                self._seen.pop(worker)
                yield Hang(worker, operation, limit)


_SIGNS_OF_LIFE = (WorkerWord.CURRENT, WorkerWord.TICK, WorkerWord.PHASE)
