"""Waiting for other threads and processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import psutil

__all__ = ["gone", "wait_until"]

MOST_SECONDS = 100.0  # far more than it takes; keeps a failing test from waiting forever


def wait_until(holds: Callable[[], object]) -> bool:
    """Return True as soon as the condition holds, False if it does not within `MOST_SECONDS`."""
    deadline = time.monotonic() + MOST_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def gone(pids: Iterable[int]) -> bool:
    """Return whether none of these processes is running any more; zombies count as gone."""
    return not any(map(_runs, pids))


def _runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
