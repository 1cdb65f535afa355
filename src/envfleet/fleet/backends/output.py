"""Output of workers while the caller draws a live view on the same terminal.

A worker would inherit that terminal, and the output of its environments, from Python or C, would land in the middle of
the view. Within `printed_by_caller()` a new worker gets a pseudo-terminal instead. A thread of the caller reads it and
writes every line to the caller's stderr, where the view prints it above itself. It is a terminal, not a pipe, because
programs write to a terminal line by line and to a pipe in large blocks.

Streams that are redirected to a file or a pipe are left alone.
"""

from __future__ import annotations

import codecs
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from envfleet.streams import error_stream

__all__ = ["printed_by_caller", "streams_of_workers"]

_LONGEST_LINE = 65536  # characters kept; a progress bar may never end its line
_terminals: list[int] = []  # one per active `printed_by_caller`; a new worker writes to the newest


def streams_of_workers() -> dict[int, int]:
    """Descriptors that replace the caller's stdout (1) and stderr (2) in a worker that starts now."""
    return {stream: _terminals[-1] for stream in (1, 2) if os.isatty(stream)} if _terminals else {}


@contextmanager
def printed_by_caller() -> Iterator[None]:
    """Let workers that start within this context print through this process, if its stderr is a terminal."""
    try:
        if not (os.isatty(2) and error_stream().isatty()):
            raise OSError
        ours, theirs = os.openpty()
    except (AttributeError, OSError):  # no live view is drawn, or no pseudo-terminal is available
        yield
        return
    reader = threading.Thread(target=_print_all, args=(ours,), name="envfleet-worker-output", daemon=True)
    reader.start()
    _terminals.append(theirs)
    try:
        yield
    finally:
        _terminals.remove(theirs)
        os.close(theirs)
        reader.join(1.0)  # it ends with the last worker, unless a simulator left a child process behind


def _print_all(terminal: int) -> None:
    """Print whole lines until the last writer is gone; stopping earlier would block writers on a full terminal."""
    decoder, rest = codecs.getincrementaldecoder("utf-8")("replace"), ""
    while piece := _read(terminal):
        *lines, rest = (rest + decoder.decode(piece)).split("\n")
        rest = rest[-_LONGEST_LINE:]
        for line in lines:
            _print_line(line)
    if rest:
        _print_line(rest)
    os.close(terminal)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # on Linux: the last writer is gone
        return b""


def _print_line(line: str) -> None:
    """Print a line as a terminal would show it: text after a carriage return replaces the text before it."""
    try:
        error_stream().write(line.rstrip("\r").rpartition("\r")[2] + "\n")
    except Exception:
        pass  # a user's failing stream must not block the workers
