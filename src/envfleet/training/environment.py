"""Finds environments by their names on the command line."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import Any

from envfleet.errors import SettingsError
from envfleet.extras import import_provider, refuse_missing_extra
from envfleet.importing import imported, imported_module, make_folder_importable
from envfleet.settings import Settings, declared_settings
from envfleet.settings.values import shown

__all__ = ["keyword_arguments", "name_of", "named_environment", "settings_of"]

_WORDS = {"true": True, "false": False, "none": None, "null": None}


def named_environment(name: str) -> str | Callable[..., Any]:
    """Return the callable that `module:callable` names, or the name itself if it is a Gymnasium id."""
    module_name, colon, attribute = name.partition(":")
    if not colon:
        import_provider(name)
        return name
    make_folder_importable()
    module = imported_module(module_name)
    import gymnasium

    if attribute in gymnasium.registry and not hasattr(module, attribute):
        return attribute  # Gymnasium's own `module:Id-v0`: the module registers the id
    return imported(name)  # type: ignore[no-any-return]  # it is callable


def settings_of(name: str, *, for_help: bool = False) -> type[Settings] | None:
    """Return the settings class that the named environment declares, if any.

    Raises MissingExtraError if the environment needs a package that is not installed; `for_help`, only if its class
    cannot be imported without that package.
    """
    found = named_environment(name)
    if not isinstance(found, str):
        return declared_settings(found)
    import gymnasium

    if found not in gymnasium.registry:
        return None  # building it reports the error
    entry_point = gymnasium.registry[found].entry_point
    if not for_help:
        refuse_missing_extra(entry_point)
    try:
        return declared_settings(imported(entry_point) if isinstance(entry_point, str) else entry_point)
    except SettingsError:
        refuse_missing_extra(entry_point)
        raise


def keyword_arguments(pairs: Iterable[str]) -> dict[str, Any]:
    """Parse `name=value` pairs. Values are Python literals, true, false, none, or otherwise text."""
    arguments = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.isidentifier():
            raise SettingsError(f"received the argument {pair!r}, expected name=value")
        arguments[name] = _value(value)
    return arguments


def _value(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    except (MemoryError, RecursionError):
        raise SettingsError(f"received the argument {shown(text)}, which is nested too deeply") from None


def name_of(env: str | Callable[..., Any]) -> str:
    """The environment's name in run folders and titles."""
    if isinstance(env, str):
        return env.rpartition(":")[2] or env
    from envfleet.fleet.wrapping import WrappedEnv

    if isinstance(env, WrappedEnv):
        return name_of(env.env)
    return getattr(env, "__name__", type(env).__name__)
