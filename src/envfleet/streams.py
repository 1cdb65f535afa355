"""Standard streams that never crash a run if their reader is gone or a character cannot be encoded."""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from typing import Any, TextIO, cast

__all__ = ["Redirected", "error_stream", "stdout_to_stderr", "steady_streams"]

_ERRORS = "envfleet.plain"
_GONE = (errno.EPIPE, errno.EIO)  # the pipe's reader is gone, the terminal is gone
# ASCII replacements for the characters of our tables, bars and curves.
_PLAIN = {
    **dict(zip("▁▂▃▄▅▆▇█▓▒░", "_.-:=+*#%+.", strict=True)),
    **dict.fromkeys("─━╌–—", "-"),
    **dict.fromkeys("│┃", "|"),
    **dict.fromkeys("╭╮╰╯", "+"),
    "±": "+-",
    "×": "x",
    "µ": "u",
    "•": "*",
    "…": "...",
    "→": "->",
}


class _Unbroken:
    """A text stream that drops text it cannot write instead of raising."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except UnicodeEncodeError:
            self.write(text.encode("ascii", "backslashreplace").decode())
        except OSError as error:
            self._give_up(error)
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        """If the reader is gone, redirect the stream to /dev/null, so that Python's flush at exit cannot fail."""
        if error.errno in _GONE:
            with suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self._stream.fileno())
                os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Redirected(_Unbroken):
    """Python's stream of a descriptor that was replaced: it writes to `kept[descriptor]`, until `end`."""

    def __init__(self, stream: Any, kept: Mapping[int, int]) -> None:
        self._original = stream
        try:
            descriptor = kept.get(stream.fileno())
        except (AttributeError, OSError, ValueError):  # none, or not of a file
            descriptor = None
        if descriptor is not None:
            stream = open(  # noqa: SIM115  # the descriptor belongs to the caller
                descriptor, "w", buffering=1, encoding=stream.encoding, errors=stream.errors, closefd=False
            )
        super().__init__(stream)

    def end(self) -> None:
        """Write to the original stream again."""
        self._stream = self._original


class _Nowhere(io.TextIOBase):
    """Discards text; replaces stderr in a process that was started without one."""

    def write(self, text: str) -> int:
        return len(text)


def error_stream() -> TextIO:
    """The current stderr, wrapped so that writing to it never fails."""
    if isinstance(sys.stderr, _Unbroken):
        return cast(TextIO, sys.stderr)
    return cast(TextIO, _Unbroken(sys.stderr or _Nowhere()))


@contextmanager
def steady_streams() -> Iterator[None]:
    """Within a command, writing messages never fails, and characters that cannot be encoded become ASCII."""
    for descriptor in (0, 1, 2):  # the next opened file would get a closed descriptor, and messages would go there
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free descriptor
    before, handlers = sys.stderr, []
    codecs.register_error(_ERRORS, _plainly)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            handlers.append((stream, stream.errors))
            stream.reconfigure(errors=_ERRORS)
    sys.stderr = error_stream()
    try:
        yield
    finally:
        sys.stderr = before
        for stream, errors in handlers:
            with suppress(OSError, ValueError):
                stream.reconfigure(errors=errors)


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Within it, what this process and the processes that it starts print to stdout goes to stderr."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        sys.stdout.flush()  # text of code that had kept the stream
        os.dup2(kept, 1)
        os.close(kept)


def _plainly(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    missing = error.object[error.start : error.end]
    return "".join(_PLAIN.get(character, "?") for character in missing), error.end
