"""Progress of an operation that may take long: a line every few seconds, and none if it is quick."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

__all__ = ["progress_lines"]

SECONDS = 3.0  # between two lines


def progress_lines(say: Callable[[str], Any], what: str, unit: str) -> Callable[[int, int], None]:
    """Return a function of the number done and of all; it says e.g. `saving: 3 of 10 groups` every few seconds."""
    last = time.monotonic()

    def progress(done: int, of: int) -> None:
        nonlocal last
        now = time.monotonic()
        if done < of and now - last >= SECONDS:
            last = now
            say(f"{what}: {done:,} of {of:,} {unit}")

    return progress
