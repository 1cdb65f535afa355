"""Presets of the built-in environments. Each family declares its own in a module `presets`."""

from __future__ import annotations

import importlib
import re
from types import ModuleType
from typing import Any

from envfleet.environments import REGISTERED
from envfleet.settings.presets import Preset

__all__ = ["declared_presets", "families", "named_presets"]


def declared_presets(entry_point: str, env: Any = None) -> dict[str, Preset]:
    """Return the presets of a built-in environment, by algorithm; empty for any other environment.

    If `env` is given, unwrapped, its family may adapt them to its settings with a function `for_env`.

    This imports the family's package. Call it where the environment is, so that nothing more is loaded.
    """
    for family in _packages():
        if re.search(rf"\b{re.escape(family)}\b", entry_point):
            module = importlib.import_module(f"{family}.presets")
            presets: dict[str, Preset] = getattr(module, "OF_CLASS", {}).get(
                entry_point.rpartition(":")[2], module.PRESETS
            )
            adapt = getattr(module, "for_env", None)
            return presets if env is None or adapt is None else adapt(presets, env)
    return {}


def families() -> list[ModuleType]:
    """Return the modules of presets of all built-in environments."""
    return [importlib.import_module(f"{package}.presets") for package in _packages()]


def _packages() -> list[str]:
    return sorted({entry.partition(":")[0].rpartition(".")[0] for entry, _ in REGISTERED.values()})


def named_presets() -> dict[str, Preset]:
    """Return the presets of built-in environments that can be asked for by name."""
    from envfleet.environments.procgen.presets import NAMED

    return NAMED
