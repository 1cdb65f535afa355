"""The call that an examination is in, readable by another process even after a crash.

The examining process writes the name of each call into a page of memory that it shares with its caller, which takes
about a microsecond. Sending it to the caller before each call would take a switch between the processes: some
milliseconds on a busy machine, and much longer than the step of a fast environment.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path
from typing import Any

__all__ = ["Announcement"]

_SIZE = 4096
_LENGTH = 2  # bytes for the length of the text


class Announcement:
    """The latest text that was written here, or in the process that this object was sent to."""

    def __init__(self) -> None:
        descriptor, self._path = tempfile.mkstemp(prefix="envfleet-check-")
        os.write(descriptor, bytes(_SIZE))  # not only its size: on a full disk, writing to the page would crash
        self._page = mmap.mmap(descriptor, _SIZE)
        os.close(descriptor)

    def write(self, text: str) -> None:
        """Replace the text."""
        data = text.encode(errors="replace")[: _SIZE - _LENGTH]
        self._page[: _LENGTH + len(data)] = len(data).to_bytes(_LENGTH, "big") + data

    def read(self) -> str:
        """The latest text; empty if there is none."""
        length = int.from_bytes(self._page[:_LENGTH], "big")
        return self._page[_LENGTH : _LENGTH + length].decode(errors="replace")

    def remove_file(self) -> None:
        """Remove the file's name, once all processes have opened it; the page stays."""
        Path(self._path).unlink(missing_ok=True)

    def __getstate__(self) -> dict[str, Any]:
        return {"_path": self._path}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._path = state["_path"]
        with Path(self._path).open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), _SIZE)
