"""The deadline of a timed run: work in progress at the deadline is dropped."""

from __future__ import annotations

import math
import time
from collections.abc import Sized

from envfleet.errors import OutOfTimeError

__all__ = ["GRACE_SECONDS", "check_time", "deadline_of_workers"]

GRACE_SECONDS = 0.5  # extra wait for a worker that cannot check the clock, e.g. inside a long step


def check_time(until: float) -> None:
    """Raise OutOfTimeError once `time.monotonic()` has reached `until`; all processes of a machine share that clock."""
    if time.monotonic() >= until:
        raise OutOfTimeError


def deadline_of_workers(until: float, hosts: Sized) -> float:
    """The deadline that workers check; none if they are on other `hosts`, whose clocks differ from the caller's.

    There, the caller alone gives up rollouts, after `GRACE_SECONDS`.
    """
    return math.inf if len(hosts) else until
