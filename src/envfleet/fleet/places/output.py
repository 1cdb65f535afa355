"""What workers print while the caller draws a live view on the same terminal.

A worker would inherit that terminal, and what its environments print, in Python or in C, would land in the middle of
the view. Within `printed_by_caller()` a new worker gets a pseudo-terminal instead. A thread of the caller reads it and
writes every line to its own stderr, where the view puts it above itself. It is a terminal, not a pipe, because
programs write to a terminal line by line and to a pipe in large blocks.

Streams that lead into a file or a pipe stay as they are.
"""

from __future__ import annotations

import codecs
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from envfleet.streams import error_stream

__all__ = ["printed_by_caller", "streams_of_workers"]

_LONGEST_LINE = 65536  # characters; a progress bar may never end its line
_terminals: list[int] = []  # of the trainings in this process; a new worker writes to the newest


def streams_of_workers() -> dict[int, int]:
    """What a worker that starts now has in place of the caller's stdout (1) and stderr (2), by descriptor."""
    return {stream: _terminals[-1] for stream in (1, 2) if os.isatty(stream)} if _terminals else {}


@contextmanager
def printed_by_caller() -> Iterator[None]:
    """Workers that start meanwhile print through this process, if its stderr is a terminal."""
    try:
        if not (os.isatty(2) and error_stream().isatty()):
            raise OSError
        ours, theirs = os.openpty()
    except (AttributeError, OSError):  # nothing is drawn, or the system has no pseudo-terminals (left)
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
        reader.join(1.0)  # it ends with the last worker, unless a simulator left a process behind


def _print_all(terminal: int) -> None:
    """Prints whole lines until nobody can write any more. It never stops before: a full terminal blocks its writers."""
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
    except OSError:  # how Linux says that the last writer is gone
        return b""


def _print_line(line: str) -> None:
    """Shows a line as a terminal would: what follows a carriage return replaces what was before it."""
    try:
        error_stream().write(line.rstrip("\r").rpartition("\r")[2] + "\n")
    except Exception:
        pass  # a stream of the user's that fails must not block the workers
