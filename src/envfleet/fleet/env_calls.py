"""Calls into the environments of a loop group: their attributes, their methods, a function of the user."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Iterable
from typing import Any

from envfleet.fleet.control import Progress
from envfleet.fleet.env_handle import EnvHandle

__all__ = ["apply_to", "call_on", "name_of"]


def call_on(
    handles: Iterable[EnvHandle], progress: Progress, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Any]:
    """Attribute `name` of each environment; if callable, the result of calling it."""
    results = []
    for handle in handles:
        progress.at(handle.index)
        try:
            value = handle.env.get_wrapper_attr(name)
            results.append(value(*args, **kwargs) if callable(value) else value)
        except (Exception, SystemExit) as error:
            raise handle.failure(f"call of {name!r}", error) from None
    return results


def apply_to(handles: Iterable[EnvHandle], progress: Progress, function: Callable[[Any], Any]) -> list[Any]:
    """Results of `function` for each environment; a generator's items as a list."""
    results = []
    for handle in handles:
        progress.at(handle.index)
        try:
            value = function(handle.env)
            results.append(_items(value, progress) if isinstance(value, Generator) else value)
        except (Exception, SystemExit) as error:
            raise handle.failure(name_of(function), error) from None
    return results


def name_of(function: Callable[[Any], Any]) -> str:
    """The name of a function, for error messages."""
    if isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", "apply")


def _items(generator: Generator[Any, None, None], progress: Progress) -> list[Any]:
    """List of all items; each one counts as progress, so that a long generator is not taken for hung."""
    items = []
    for item in generator:
        progress.tick()
        items.append(item)
    return items
