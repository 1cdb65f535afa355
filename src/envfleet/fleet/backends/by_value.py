"""Pickling for machines that do not have the user's own modules: they travel by value.

A module that is installed (in site-packages) must be installed on every node. The user's own modules, found elsewhere
on `sys.path`, are usually on one machine only.
"""

from __future__ import annotations

import sys
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

import envfleet
from envfleet.fleet.channel import dump

__all__ = ["by_value", "dumped_by_value"]

_registering = threading.RLock()  # the registry is one for all threads, and workers are moved by another thread


@contextmanager
def by_value() -> Iterator[None]:
    """Pickle functions and classes of the user's own modules by value inside the `with` block."""
    with _registering:
        registered = []
        for module in _own_modules():
            if module.__name__ not in cloudpickle.list_registry_pickle_by_value():
                cloudpickle.register_pickle_by_value(module)
                registered.append(module)
        try:
            yield
        finally:
            for module in registered:
                cloudpickle.unregister_pickle_by_value(module)


def dumped_by_value(value: Any) -> bytes:
    with by_value():
        return dump(value)


def _own_modules() -> list[ModuleType]:
    """Modules in Python files outside of the standard library, site-packages and Envfleet."""
    installed = _installed_in(tuple(sys.path))
    found = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        own = isinstance(file, str) and file.endswith(".py") and not _lies_in(file, installed)
        if own and name != "__main__" and module.__name__ == name:
            found.append(module)
    return found


# Both are cached, because a program has thousands of modules and resolving their paths takes 0.1 s, for every message.


@cache
def _installed_in(path: tuple[str, ...]) -> tuple[Path, ...]:
    """The folders of installed modules; `path` is `sys.path`."""
    folders = [sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")]
    folders += [place for place in path if place.endswith(("site-packages", "dist-packages"))]
    folders.append(str(Path(envfleet.__file__).parent))
    return tuple({Path(folder).resolve() for folder in folders})


@cache
def _lies_in(file: str, folders: tuple[Path, ...]) -> bool:
    path = Path(file).resolve()
    return any(path.is_relative_to(folder) for folder in folders)
