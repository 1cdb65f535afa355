"""Numba kernels: compiled once, cached on disk, run without the GIL."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from envfleet.errors import MissingExtraError

__all__ = ["compiler"]

F = TypeVar("F", bound=Callable[..., Any])


def compiler(what: str, extra: str, **options: Any) -> Callable[[F], F]:
    """Return a decorator that compiles a function at its first call.

    `what` (the feature that needs Numba) and `extra` (which installs it) are for the error if Numba is missing.

    The compiled code is cached beside the module, else in the user's cache folder, else in a temporary folder. A kernel
    and the functions it calls must be in one module, because Numba recompiles only when the kernel's own file changes.
    """
    try:
        import numba
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"{what} is compiled by numba, which is not installed", hint=f'pip install "envfleet[{extra}]"'
        ) from error

    def compiled(function: F) -> F:
        try:
            return cast(F, numba.njit(cache=True, nogil=True, **options)(function))
        except RuntimeError:  # Numba found no writable cache folder
            return cast(F, _kept_in(_temporary_folder(), function, options))

    return compiled


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
