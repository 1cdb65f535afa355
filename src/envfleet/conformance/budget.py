"""The time budget of a check."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Budget"]


class Budget:
    """A number of seconds, starting now. Work that can be cut short asks before each step whether there is time.

    It can be sent to another process, because all processes of a machine share the clock.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds, self._clock = seconds, clock
        self._until = clock() + seconds
        self.refused = False  # whether something was cut short

    @property
    def left(self) -> float:
        """Remaining seconds; 0 or less once the time is up."""
        return self._until - self._clock()

    def allows_more(self) -> bool:
        """Whether there is time for one more step; if not, sets `refused`."""
        if self.left > 0:
            return True
        self.refused = True
        return False

    def part(self, seconds: float) -> Budget:
        """Return a budget of at most `seconds`, and no more than what is left of this one."""
        return Budget(min(seconds, self.left), self._clock)
