"""The watch: which workers have work and get nowhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from envfleet.fleet.control import WorkerWord

__all__ = ["ProgressWatch"]

LOOK_SECONDS = 0.25  # how often a caller that sleeps looks for deaths and hangs


class ProgressWatch:
    """Remembers how far each worker was, and since when: same environment, same counts."""

    def __init__(self, words: memoryview[int], worker_words: Sequence[int], limit: float | None) -> None:
        self._words, self._worker_words, self._limit = words, worker_words, limit
        self.look_every = LOOK_SECONDS if limit is None else min(LOOK_SECONDS, limit / 4)
        self._seen: dict[int, tuple[tuple[int, int, int], float]] = {}

    def stuck(self) -> Iterator[int]:
        """The workers that have been where they are for longer than the limit."""
        words, now = self._words, time.monotonic()
        for worker, line in enumerate(self._worker_words):
            finished = words[line + WorkerWord.FINISHED]
            if self._limit is None or finished == words[line + WorkerWord.POSTED]:
                self._seen.pop(worker, None)
                continue
            progress = (finished, words[line + WorkerWord.CURRENT], words[line + WorkerWord.TICK])
            seen, since = self._seen.get(worker, (None, now))
            if progress != seen:
                self._seen[worker] = (progress, now)
            elif now - since > self._limit:
                self._seen.pop(worker)
                yield worker
