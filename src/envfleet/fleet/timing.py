"""The one way to measure speed: advance something for a while, and count its steps and its time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from envfleet.fleet.os_compat import queued_seconds

__all__ = ["Timing", "timed"]


@dataclass(frozen=True)
class Timing:
    """Steps, and the time that they took."""

    steps: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0  # of all threads of this process
    queued_seconds: float = 0.0  # in which this thread was ready to run, but others had its core

    def __add__(self, other: Timing) -> Timing:
        return Timing(
            self.steps + other.steps,
            self.seconds + other.seconds,
            self.cpu_seconds + other.cpu_seconds,
            self.queued_seconds + other.queued_seconds,
        )

    @property
    def steps_per_second(self) -> float:
        return self.steps / self.seconds

    @property
    def undisturbed_seconds(self) -> float:
        """The time without the queue for a core; at least what was computed in it."""
        return max(self.seconds - self.queued_seconds, min(self.cpu_seconds, self.seconds))


def timed(advance: Callable[[], int], seconds: float, most_steps: float = math.inf) -> Timing:
    """Call `advance`, which returns the steps it made, for `seconds` or until `most_steps`, but until it made one."""
    # The clock is read first and last: a queue between two readings would otherwise be subtracted, but not measured.
    began, queue_began, cpu_began = time.perf_counter(), queued_seconds(), time.process_time()
    steps = 0
    while not steps or (steps < most_steps and time.perf_counter() - began < seconds):
        steps += advance()
    cpu_seconds = time.process_time() - cpu_began
    queued = queued_seconds() - queue_began
    return Timing(steps, time.perf_counter() - began, cpu_seconds, queued)
