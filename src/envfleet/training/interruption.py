"""Ctrl-C, SIGTERM, SIGHUP while training: the first saves a checkpoint and ends cleanly, a second ends at once."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import AbstractContextManager, suppress
from types import FrameType, TracebackType
from typing import Self

from envfleet.fleet.backends.sequential import interrupts_a_hang
from envfleet.signals import ENDING, handled, terminate

__all__ = ["Interruption", "ended_cleanly"]


def ended_cleanly() -> AbstractContextManager[None]:
    """Make SIGTERM and SIGHUP act like Ctrl-C while there is nothing to save: workers closed, no leftovers."""
    return handled({number: terminate for number in ENDING if number != signal.SIGINT})


class Interruption:
    """Handles the signals while entered, in the main thread only, and restores the old handlers afterwards."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet or sys.__stderr__ is None  # without stderr, descriptor 2 may belong to another file
        self._signal: int | None = None
        self._handled = handled(dict.fromkeys(ENDING, self._take))

    @property
    def asked(self) -> bool:
        """Whether a signal asked to stop."""
        return self._signal is not None

    def __enter__(self) -> Self:
        self._handled.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._handled.__exit__(kind, error, traceback)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if interrupts_a_hang():
            raise KeyboardInterrupt
        if self.asked:
            terminate(number, frame)
        self._signal = number
        if not self._quiet:  # bypass Python's buffers: the signal may arrive in the middle of a line
            with suppress(OSError):  # nobody reads it any more, e.g. after SIGHUP
                os.write(2, b"\nstopping after this update; once more ends at once, without saving\n")

    def leave(self) -> None:
        """End as the signal asks, after everything is saved. The command sets the conventional exit code."""
        if self._signal == signal.SIGINT:
            raise KeyboardInterrupt("the run is saved")  # the argument means that the user has been informed
        if self._signal is not None:
            raise SystemExit(128 + self._signal)
