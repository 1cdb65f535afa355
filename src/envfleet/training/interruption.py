"""Ctrl-C and SIGTERM while training: the first asks for a checkpoint and an orderly end, the second ends at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Self

from envfleet.fleet.places.sequential import interrupts_a_hang

__all__ = ["Interruption"]


class Interruption:
    """Takes the signals while it is entered, in the main thread only, and gives them back afterwards."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet or sys.__stderr__ is None  # its descriptor may be somebody else's
        self._signal: int | None = None
        self._before: dict[int, Any] = {}

    @property
    def asked(self) -> bool:
        """Somebody asked for an end."""
        return self._signal is not None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self.asked or interrupts_a_hang():
            raise KeyboardInterrupt
        self._signal = number
        if not self._quiet:  # past Python's buffers: the signal may have come in the middle of a line
            with suppress(OSError):  # nobody reads it any more
                os.write(2, b"\nstopping after this update; once more ends at once, without saving\n")

    def leave(self) -> None:
        """Ends as the signal asks, now that everything is saved; the command gives the conventional exit code."""
        if self._signal == signal.SIGINT:
            raise KeyboardInterrupt("the run is saved")  # an argument: the user has been told
        if self._signal == signal.SIGTERM:
            raise SystemExit(128 + signal.SIGTERM)
