"""Numba kernels: compiled once, cached on disk, run without the GIL.

On a new machine all workers of a fleet need the same kernels at the same moment. A lock file beside the cache lets one
of them compile while the others wait and then read its result. Otherwise each would compile for itself.
"""

from __future__ import annotations

import os
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

__all__ = ["compiler"]

F = TypeVar("F", bound=Callable[..., Any])
_LONGEST_WAIT, _PAUSE = 120.0, 0.02  # seconds; compiling all kernels takes about ten


def compiler(**options: Any) -> Callable[[F], F]:
    """Return a decorator that compiles a function at its first call; `options` are those of Numba.

    The compiled code is cached beside the module, else in the user's cache folder, else in a temporary folder. A kernel
    and the functions it calls must be in one module, because Numba recompiles only when the kernel's own file changes.
    """
    import numba

    def compiled(function: F) -> F:
        try:
            return cast(F, _in_turn(numba.njit(cache=True, nogil=True, **options)(function)))
        except RuntimeError:  # Numba found no writable cache folder
            return cast(F, _in_turn(_kept_in(_temporary_folder(), function, options)))

    return compiled


class _Turns:
    """Lets one process at a time compile, by a lock file in the cache folder, if files can be locked there."""

    def __init__(self) -> None:
        self._thread = threading.RLock()
        self._takes_turns = True  # not within a turn, because a kernel compiles those that it calls

    @contextmanager
    def one(self, folder: str | None) -> Iterator[None]:
        with self._thread:
            if folder is None or not self._takes_turns:
                yield
                return
            lock = self._locked(folder)
            self._takes_turns = False
            try:
                yield
            finally:
                if lock is not None:  # else no later turn would come either
                    os.close(lock)  # which also unlocks it
                    self._takes_turns = True

    def _locked(self, folder: str) -> int | None:
        try:
            import fcntl

            lock = os.open(Path(folder, "envfleet-kernels.lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except (ImportError, OSError):  # not on this system, or the folder cannot be written: everyone compiles
            return None
        until = time.monotonic() + _LONGEST_WAIT
        while time.monotonic() < until:
            try:
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):  # somebody else has it
                time.sleep(_PAUSE)
            except OSError:  # a file system without locks
                break
            else:
                return lock
        os.close(lock)  # its holder is stopped or hangs: compile as well
        return None


_turns = _Turns()


def _in_turn(dispatcher: Any) -> Any:
    """Let one process at a time compile the kernel, or read it from the cache."""
    compile_now = dispatcher.compile

    def compile_in_turn(signature: Any) -> Any:
        with _turns.one(dispatcher.stats.cache_path):
            return compile_now(signature)

    dispatcher.compile = compile_in_turn
    return dispatcher


def _kept_in(folder: Path, function: Callable[..., Any], options: dict[str, Any]) -> Any:
    import numba

    config: Any = numba.config  # its attributes are set at run time
    before = config.CACHE_DIR  # read only while a function is decorated, so other kernels are unaffected
    config.CACHE_DIR = str(folder)
    try:
        return numba.njit(cache=True, nogil=True, **options)(function)
    except RuntimeError:  # no cache at all: each process compiles for itself
        return numba.njit(nogil=True, **options)(function)
    finally:
        config.CACHE_DIR = before


def _temporary_folder() -> Path:
    """Return a folder that no other user can write to, because its files are loaded as code."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir(), f"envfleet-kernels-{user}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return folder  # unusable; Numba will fail when it writes to it
    if stat.S_ISDIR(found.st_mode) and found.st_uid == user and not found.st_mode & 0o077:
        return folder
    return Path(tempfile.mkdtemp(prefix="envfleet-kernels-"))
