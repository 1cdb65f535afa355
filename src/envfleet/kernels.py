"""Kernels compiled by Numba: once, kept on disk, and running without the GIL."""

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
    """A decorator that compiles functions at their first call; `what` needs it, and `extra` installs Numba.

    Numba keeps the code beside the module, or in the user's cache folder, or, if neither can be written, in a
    temporary folder. A kernel and what it calls stand in one module: the code on disk is thrown away when this file
    changes, and only then.
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
        except RuntimeError:  # there is no folder that it could be kept in
            return cast(F, _kept_in(_temporary_folder(), function, options))

    return compiled


def _kept_in(folder: Path, function: Callable[..., Any], options: dict[str, Any]) -> Any:
    import numba

    config: Any = numba.config  # its names are made at run time
    before = config.CACHE_DIR  # read when a function is decorated, so others are not concerned
    config.CACHE_DIR = str(folder)
    try:
        return numba.njit(cache=True, nogil=True, **options)(function)
    except RuntimeError:  # not even there: each process compiles for itself
        return numba.njit(nogil=True, **options)(function)
    finally:
        config.CACHE_DIR = before


def _temporary_folder() -> Path:
    """A folder that nobody else can write: what is kept in it is loaded as code."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir(), f"envfleet-kernels-{user}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return folder  # it cannot be used, which is noticed when something is kept there
    if stat.S_ISDIR(found.st_mode) and found.st_uid == user and not found.st_mode & 0o077:
        return folder
    return Path(tempfile.mkdtemp(prefix="envfleet-kernels-"))
