"""The time that a check may take."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Budget"]


class Budget:
    """Some seconds from now on. Work that can be cut short asks before each step whether there is time for it.

    It can be sent to another process: the clock of a machine is the same in all of them.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds, self._clock = seconds, clock
        self._until = clock() + seconds
        self.refused = False  # something was cut short

    @property
    def left(self) -> float:
        """The seconds that are left; 0 or less once they are over."""
        return self._until - self._clock()

    def allows_more(self) -> bool:
        """Whether there is time for one more step; remembers that there was none."""
        if self.left > 0:
            return True
        self.refused = True
        return False

    def part(self, seconds: float) -> Budget:
        """At most so many seconds of those that are left."""
        return Budget(min(seconds, self.left), self._clock)
