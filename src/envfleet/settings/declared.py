"""Settings that an environment declares for itself, so that they join the command line, the files and the docs.

An environment's class names them in `settings_class`; its constructor takes their fields as keyword arguments:

    class MyEnv(gymnasium.Env):
        settings_class = MyEnvSettings      # a subclass of envfleet.settings.Settings

        def __init__(self, *, render_mode=None, **settings):
            self.settings = MyEnvSettings(**settings)
"""

from __future__ import annotations

import importlib
from typing import Any, ClassVar, Protocol, runtime_checkable

from envfleet.settings.declaration import Settings

__all__ = ["DeclaresSettings", "declared_settings"]


@runtime_checkable
class DeclaresSettings(Protocol):
    """An environment's class with settings of its own."""

    settings_class: ClassVar[type[Settings]]


def declared_settings(entry_point: Any) -> type[Settings] | None:
    """The settings that an environment declares, if any; `entry_point` is its class, or `module:Class`.

    Only the module of the class is imported: keep heavy imports inside its functions.
    """
    if isinstance(entry_point, str):
        module, _, name = entry_point.partition(":")
        entry_point = getattr(importlib.import_module(module), name, None)
    declared = getattr(entry_point, "settings_class", None)
    return declared if isinstance(declared, type) and issubclass(declared, Settings) else None
