"""Environments that hang or are slow on purpose create a mark file meanwhile: see `limits_hold`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["hang", "take_long"]


def hang(mark: Path) -> None:
    """Hang far longer than any test runs."""
    with take_long(mark):
        sleep_for_an_hour()


def sleep_for_an_hour() -> None:
    time.sleep(3600)


@contextmanager
def take_long(mark: Path) -> Iterator[None]:
    """Apply the fleet's time limits to the code inside the `with` block."""
    mark.write_text(str(os.getpid()))
    try:
        yield
    finally:
        mark.unlink()
