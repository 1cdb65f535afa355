"""Waiting for what happens in other threads and processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import psutil

__all__ = ["gone", "wait_until"]

MOST_SECONDS = 100.0  # far more than it takes; a test that fails does not wait for ever


def wait_until(holds: Callable[[], object]) -> bool:
    """Returns as soon as it holds; False if it never does."""
    deadline = time.monotonic() + MOST_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def gone(pids: Iterable[int]) -> bool:
    """Whether none of these processes runs any more; a zombie does not."""
    return not any(map(_runs, pids))


def _runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
