"""Environments as one names them on the command line."""

from __future__ import annotations

import ast
import difflib
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from envfleet.errors import SettingsError

__all__ = ["keyword_arguments", "named_environment"]

_WORDS = {"true": True, "false": False, "none": None, "null": None}


def named_environment(name: str) -> str | Callable[..., Any]:
    """The callable that `module:callable` names, or the name itself where it is a Gymnasium id."""
    module_name, colon, attribute = name.partition(":")
    if not colon:
        return name
    module = _module(module_name)
    found = getattr(module, attribute, None)
    if callable(found):
        return found  # type: ignore[no-any-return]  # callable() leaves it Any
    import gymnasium

    if attribute in gymnasium.registry:  # Gymnasium's own `module:Id-v0`: import the module, then make the id
        return attribute
    if found is not None:
        raise SettingsError(f"{name} is {type(found).__name__}, expected something that builds an environment")
    callables = [each for each, value in vars(module).items() if callable(value) and each[0] != "_"]
    near = difflib.get_close_matches(attribute, callables, n=3)
    raise SettingsError(
        f"module {module_name!r} has no {attribute!r}",
        hint=f"nearest: {', '.join(near)}" if near else "name a function or class that builds the environment",
    )


def keyword_arguments(pairs: Iterable[str]) -> dict[str, Any]:
    """Arguments from `name=value`: values are Python literals, true, false, none, or else text."""
    arguments = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.isidentifier():
            raise SettingsError(f"received the environment argument {pair!r}, expected name=value")
        arguments[name] = _value(value)
    return arguments


def _value(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _module(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:  # a script in bin/ does not see the user's own folder by itself
        sys.path.insert(0, here)
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise SettingsError(
                f"module {name!r} needs {error.name!r}, which is not installed",
                hint="install it, or mend the import",
            ) from error
        raise SettingsError(
            f"there is no module {name!r}",
            hint="module:callable is looked for in the current folder and among the installed packages",
        ) from error
    except Exception as error:
        from envfleet.conformance.report import own_traceback

        raise SettingsError(f"module {name!r} raised while it was imported\n\n{own_traceback(error)}") from error
