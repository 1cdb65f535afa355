"""Environments that hang or are slow on purpose say so in a file, the mark, as long as they are: see `limits_hold`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["hang", "take_long"]


def hang(mark: Path) -> None:
    """For ever, as far as a test is concerned."""
    with take_long(mark):
        sleep_for_an_hour()


def sleep_for_an_hour() -> None:
    time.sleep(3600)


@contextmanager
def take_long(mark: Path) -> Iterator[None]:
    """Whatever is done in here is under the time limits of the fleet."""
    mark.write_text(str(os.getpid()))
    try:
        yield
    finally:
        mark.unlink()
