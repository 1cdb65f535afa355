"""The deadline of a timed run: work in progress at the deadline is dropped."""

from __future__ import annotations

import time

from envfleet.errors import OutOfTimeError

__all__ = ["GRACE_SECONDS", "check_time"]

GRACE_SECONDS = 0.5  # extra wait for a worker that cannot check the clock, e.g. inside a long step


def check_time(until: float) -> None:
    """Raise OutOfTimeError once `time.monotonic()` has reached `until`; all processes of a machine share that clock."""
    if time.monotonic() >= until:
        raise OutOfTimeError
