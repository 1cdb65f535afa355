"""Output of environments while the caller draws a live view on the same terminal.

What environments print, from Python or C, would land in the middle of the view. Within `printed_by_caller()` the
descriptors of this process and of new workers lead to a pseudo-terminal instead. Whole lines come back to a thread of
the caller, which writes them to its stderr, where the view prints them above itself. It is a terminal, not a pipe,
because programs write to a terminal line by line and to a pipe in large blocks.

A process of its own reads the pseudo-terminal (`relay.py`). A thread alone could not: C code that prints much while it
holds the GIL would wait for that thread, which would wait for the GIL. And what a crashing process printed last would
be lost with it.

Streams that are redirected to a file or a pipe are left alone.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from envfleet.fleet.backends import relay
from envfleet.streams import Redirected, error_stream

__all__ = ["original_streams", "printed_by_caller", "streams_of_workers"]

_relays: list[_Relay] = []  # one per active `printed_by_caller`; the newest counts


def streams_of_workers() -> dict[int, int]:
    """Descriptors that replace the caller's stdout (1) and stderr (2) in a worker that starts now."""
    return {stream: _relays[-1].terminal for stream in (1, 2) if os.isatty(stream)} if _relays else {}


def original_streams() -> Mapping[int, int]:
    """The caller's own stdout and stderr, if they are replaced now: for processes that live longer than a run."""
    return _relays[0].kept if _relays else {}


@contextmanager
def printed_by_caller() -> Iterator[None]:
    """Let this process, and workers that start within this context, print above the live view of a terminal."""
    try:
        if not (os.isatty(2) and error_stream().isatty()):
            raise OSError
        found = _Relay()
    except (AttributeError, OSError):  # no live view is drawn, or no pseudo-terminal is available
        yield
        return
    _relays.append(found)
    try:
        with found.replacing_streams():
            yield
    finally:
        _relays.remove(found)
        found.close()


class _Relay:
    """A pseudo-terminal whose lines this process prints; `kept` are the descriptors that it replaces."""

    def __init__(self) -> None:
        ours, self.terminal = os.openpty()
        self.kept: dict[int, int] = {}
        self._pieces = 0  # printed so far
        self._socket, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(relay.__file__)],
                stdin=ours,
                stdout=theirs.fileno(),
                start_new_session=True,  # Ctrl-C is for the run
            )
        except OSError:
            os.close(self.terminal)
            self._socket.close()
            raise
        finally:
            os.close(ours)
            theirs.close()
        _copy_size(self.terminal)
        self._reader = threading.Thread(target=self._print_all, name="envfleet-output", daemon=True)
        self._reader.start()

    @contextmanager
    def replacing_streams(self) -> Iterator[None]:
        """Lead the descriptors 1 and 2 to the pseudo-terminal. Python's streams still write to the real one."""
        before = sys.stdout, sys.stderr
        _flush(*before)
        self.kept = {number: os.dup(number) for number in (1, 2) if os.isatty(number)}
        ours = [Redirected(stream, self.kept) for stream in before]
        sys.stdout, sys.stderr = ours
        for number in self.kept:
            os.dup2(self.terminal, number)
        try:
            yield
        finally:
            _flush(*before, *ours)
            sys.stdout, sys.stderr = before
            for number, descriptor in self.kept.items():
                os.dup2(descriptor, number)
            for stream in ours:
                stream.end()  # somebody may have kept it

    def close(self) -> None:
        """Print what is still on its way. It ends with the last writer, or stalls: a simulator left a child behind."""
        os.close(self.terminal)
        printed = -1
        while self._reader.is_alive() and printed < self._pieces:
            printed = self._pieces
            self._reader.join(1.0)
        for descriptor in self.kept.values():  # not earlier: the reader may have been writing to it
            os.close(descriptor)

    def _print_all(self) -> None:
        """Print whole lines until the last writer is gone; stopping earlier would block writers."""
        with self._socket, suppress(OSError):
            while piece := self._socket.recv(relay.PIECE):
                whole = piece.rfind(b"\n") + 1
                for line in piece[:whole].decode(errors="replace").split("\n")[:-1]:
                    _print_line(line)
                if not whole and len(piece) == relay.PIECE:  # a long line, or a progress bar that never ends its line
                    whole = piece.rfind(b"\r") + 1 or len(piece)
                    _print_line(piece[:whole].decode(errors="replace"))
                self._pieces += 1
                self._socket.send(whole.to_bytes(relay.ANSWER, "little"))
        self._process.wait()


def _copy_size(terminal: int) -> None:
    import termios

    with suppress(OSError, termios.error):
        termios.tcsetwinsize(terminal, termios.tcgetwinsize(2))


def _flush(*streams: Any) -> None:
    for stream in streams:
        with suppress(AttributeError, OSError, ValueError):
            stream.flush()


def _print_line(line: str) -> None:
    """Print a line as a terminal would show it: text after a carriage return replaces the text before it."""
    try:
        error_stream().write(line.rstrip("\r").rpartition("\r")[2] + "\n")
    except Exception:
        pass  # a user's failing stream must not block the workers
