"""How kernels are compiled: once, kept on disk, and running without the GIL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from envfleet.errors import MissingExtraError

try:
    import numba
except ModuleNotFoundError as error:
    raise MissingExtraError(
        "the wildfire model is compiled by numba, which is not installed", hint="pip install 'envfleet[wildfire]'"
    ) from error

__all__ = ["kernel"]

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compiled at its first call. Numba keeps the code beside the module, or in the user's cache folder.

    A kernel and what it calls stand in one module: the code on disk is thrown away when this file changes, and
    only then. No fast mathematics: the same inputs give the same bytes.
    """
    compiled: Any = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    return cast(F, compiled)
