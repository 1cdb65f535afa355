"""Atomic file writes: written aside, flushed to disk, then renamed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from envfleet.errors import ResourceError

__all__ = ["discard", "sync_folder", "write_file", "write_whole", "writing"]


_THEN = "then run `envfleet resume`"


@contextmanager
def writing(what: str, path: Path, then: str = _THEN) -> Iterator[None]:
    """Turn an OSError into a ResourceError that names the file. `then` ends its hint."""
    try:
        yield
    except OSError as error:
        raise ResourceError(
            f"{what} cannot be written to {path}: {error.strerror or error}",
            hint=f"free some space or make the folder writable, {then}",
        ) from error


def write_file(path: Path, content: bytes) -> None:
    """Write a new file and flush it to disk."""
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file atomically: after a crash, it has either the old or the new content."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write_file(aside, content)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to disk. Does nothing on Windows, where folders cannot be opened."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def discard(entry: Path) -> None:
    """Remove a file, a link or a whole folder, if it exists."""
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry)
    else:
        entry.unlink(missing_ok=True)
