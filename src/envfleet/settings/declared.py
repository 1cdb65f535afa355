"""Settings that an environment declares, so that they become flags, file keys and documentation.

The environment class names them in `settings_class`; its constructor takes their fields as keyword arguments:

    class MyEnv(gymnasium.Env):
        settings_class = MyEnvSettings      # a subclass of envfleet.settings.Settings

        def __init__(self, *, render_mode=None, **settings):
            self.settings = MyEnvSettings(**settings)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envfleet.settings.declaration import Settings, dotted_keys, kinds_of, name_of

__all__ = ["declared_settings", "own_names", "split_own"]


def declared_settings(env: Any) -> type[Settings] | None:
    """Return the settings class that an environment declares, if any; `env` is its class or another maker of it."""
    declared = getattr(env, "settings_class", None)
    return declared if isinstance(declared, type) and issubclass(declared, Settings) else None


def own_names(own: type[Settings], cls: type[Settings]) -> list[str]:
    """Return the environment's settings that do not clash with a name or alias of `cls`; `cls` wins."""
    return [name for name in kinds_of(own) if name_of(cls, name) is None]


def split_own(
    mapping: Mapping[str, Any], own: type[Settings], cls: type[Settings], *, source: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a mapping into the part for `cls` and the environment's own settings, checked and by name."""
    names = own_names(own, cls)
    keys = dict(dotted_keys(cls, mapping))
    meant = {key: value for key, value in keys.items() if name_of(cls, key) is None and name_of(own, key) in names}
    checked = own.from_mapping(meant, source=source)
    rest = {key: value for key, value in keys.items() if key not in meant}
    return rest, {name: getattr(checked, name) for name in names if name in checked.given}
