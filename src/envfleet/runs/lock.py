"""A lock that allows one process at a time in a run folder.

Uses `fcntl.lockf`, not `flock`: forked workers do not inherit it, so it ends with the process that took it, however
that ends. It has two pitfalls. It does not exclude the same process, and closing any descriptor of the file releases
it. So this module lists the locks of its process and does not open their files again. Without fcntl, the file names a
process, and the lock holds while that process lives.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self

import psutil

from envfleet.errors import SettingsError
from envfleet.settings.files import parse_json

__all__ = ["RunLock", "holder"]

_fcntl: ModuleType | None
try:
    import fcntl as _fcntl
except ImportError:  # Windows
    _fcntl = None

_ATTEMPTS, _PAUSE = 5, 0.05  # `holder` takes the lock for a moment when it looks
_held: dict[Path, RunLock] = {}
_taking = threading.Lock()  # between threads of this process, which share the locks of files


class RunLock:
    """Exclusive right to write into a run folder, until `release` or the end of the process."""

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()
        self._descriptor: int | None = None
        for attempt in range(_ATTEMPTS):
            if self._take():
                break
            if attempt < _ATTEMPTS - 1:
                time.sleep(_PAUSE)
        else:
            pid = holder(self._path)
            raise SettingsError(
                f"the run {self._path.parent} is in use by process {pid or 'unknown'}",
                hint="wait until it ends or stop it; to train beside it, give another --output-dir",
            )

    def _take(self) -> bool:
        with _taking:
            taken = self._path not in _held and self._take_file()
            if taken:
                _held[self._path] = self
            return taken

    def _take_file(self) -> bool:
        if _fcntl is None:
            return _take_by_name(self._path)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _fcntl.lockf(descriptor, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        os.ftruncate(descriptor, 0)
        os.write(descriptor, _own_name())
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        if _held.get(self._path) is not self:
            return
        del _held[self._path]
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        else:
            self._path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def holder(path: Path) -> int | None:
    """The pid that holds the lock; 0 if unknown, None if the lock is free."""
    path = path.resolve()
    if path in _held:
        return os.getpid()
    try:
        if _fcntl is None:
            return _named_process(path)
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        _fcntl.lockf(descriptor, _fcntl.LOCK_SH | _fcntl.LOCK_NB)
    except OSError:
        return int(_read(path).get("pid", 0))
    else:
        return None
    finally:
        os.close(descriptor)


# ---- without fcntl ----


def _own_name() -> bytes:
    return json.dumps({"pid": os.getpid(), "started": psutil.Process().create_time()}).encode()


def _read(path: Path) -> dict[str, Any]:
    try:
        content = parse_json(path.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _named_process(path: Path) -> int | None:
    named = _read(path)
    try:
        # The start time distinguishes a later process with the same pid.
        alive = psutil.Process(named["pid"]).create_time() == named["started"]
    except (KeyError, TypeError, ValueError, psutil.Error):
        return None
    return int(named["pid"]) if alive else None


def _take_by_name(path: Path) -> bool:
    if _named_process(path) is not None:
        return False
    path.unlink(missing_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:  # another process was faster
        return False
    os.write(descriptor, _own_name())
    os.close(descriptor)
    return True
