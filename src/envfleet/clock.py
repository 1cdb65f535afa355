"""The clock of a timed run: what is under way when its time is over is given up."""

from __future__ import annotations

import time

from envfleet.errors import OutOfTimeError

__all__ = ["GRACE_SECONDS", "check_time"]

GRACE_SECONDS = 0.5  # how long somebody who cannot look at the clock is waited for


def check_time(until: float) -> None:
    """OutOfTimeError at the time `until`, by `time.monotonic()`: all processes of a machine share it."""
    if time.monotonic() >= until:
        raise OutOfTimeError
