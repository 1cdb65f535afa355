"""Limits how often one worker or one environment is restarted."""

from __future__ import annotations

import time
from collections import deque

from envfleet.fleet.spec import Restarts

__all__ = ["RestartLimiter"]

_LONGEST_PAUSE = 5.0  # seconds


class RestartLimiter:
    """Counts recent restarts; the pauses between them grow."""

    def __init__(self, allowed: Restarts) -> None:
        self.within = allowed.within
        self._limit, self._backoff = allowed.limit, allowed.backoff
        self._times: deque[float] = deque()

    @property
    def recent(self) -> int:
        """Number of restarts `within` the last seconds."""
        oldest = time.monotonic() - self.within
        while self._times and self._times[0] < oldest:
            self._times.popleft()
        return len(self._times)

    @property
    def exhausted(self) -> bool:
        """Whether no further restart is allowed now."""
        return self.recent >= self._limit

    def count(self) -> float:
        """Count a restart; return the seconds to wait before it."""
        recent = self.recent
        self._times.append(time.monotonic())
        return min(_LONGEST_PAUSE, self._backoff * 2.0 ** (recent - 1)) if recent else 0.0
