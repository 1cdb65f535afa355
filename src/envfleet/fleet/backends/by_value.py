"""Pickling for machines that do not have the user's own modules: they travel by value.

A module that is installed (in site-packages) must be installed on every node. The user's own modules, found elsewhere
on `sys.path`, are usually on one machine only.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

import envfleet
from envfleet.fleet.channel import dump

__all__ = ["by_value", "dumped_by_value"]


@contextmanager
def by_value() -> Iterator[None]:
    """Pickle functions and classes of the user's own modules by value inside the `with` block."""
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
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    installed = [Path(sysconfig.get_path(kind)).resolve() for kind in kinds]
    installed += [Path(place).resolve() for place in sys.path if place.endswith(("site-packages", "dist-packages"))]
    installed.append(Path(envfleet.__file__).resolve().parent)
    found = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name != "__main__" and isinstance(file, str) and file.endswith(".py") and module.__name__ == name:
            path = Path(file).resolve()
            if not any(path.is_relative_to(place) for place in installed):
                found.append(module)
    return found
