"""Finds environments by their names on the command line."""

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
from envfleet.extras import import_provider, refuse_missing_extra
from envfleet.settings import Settings, declared_settings
from envfleet.settings.values import shown

__all__ = [
    "keyword_arguments",
    "make_folder_importable",
    "name_of",
    "named_environment",
    "settings_of",
]

_WORDS = {"true": True, "false": False, "none": None, "null": None}


def named_environment(name: str) -> str | Callable[..., Any]:
    """Return the callable that `module:callable` names, or the name itself if it is a Gymnasium id."""
    module_name, colon, attribute = name.partition(":")
    if not colon:
        import_provider(name)
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


def settings_of(name: str) -> type[Settings] | None:
    """Return the settings class that the named environment declares, if any."""
    found: Any = named_environment(name)
    if isinstance(found, str):
        import gymnasium

        if found not in gymnasium.registry:
            return None  # building it reports the error
        found = gymnasium.registry[found].entry_point
        refuse_missing_extra(found)
    try:
        return declared_settings(found)
    except ImportError:
        return None  # building it reports the missing package


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


def make_folder_importable() -> None:
    """Make modules in the current folder importable, unless the folder belongs to a run.

    The folder comes last on `sys.path`, so that a file `queue.py` in it does not shadow Python's own.
    """
    here = Path.cwd()
    if str(here) not in sys.path and "" not in sys.path and not _belongs_to_run(here):
        sys.path.append(str(here))


def _belongs_to_run(folder: Path) -> bool:
    """Whether the folder is part of a run. A run may come from somebody else, so its files are data, never code."""
    inside = any((above / "manifest.json").is_file() and (above / "config.yaml").is_file() for above in folder.parents)
    return inside or (folder / "manifest.json").is_file()


def _module(name: str) -> ModuleType:
    make_folder_importable()
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise SettingsError(
                f"module {name!r} needs {error.name!r}, which is not installed",
                hint="install it, or fix the import",
            ) from error
        where = "module:callable is looked for among the installed packages and in the current folder"
        if _belongs_to_run(Path.cwd()):
            where += ", but never in the folder of a run (it has a manifest.json): run the command from your own folder"
        raise SettingsError(f"there is no module {name!r}", hint=where) from error
    except Exception as error:
        from envfleet.conformance.report import own_traceback

        raise SettingsError(f"module {name!r} raised while it was imported\n\n{own_traceback(error)}") from error


def name_of(env: str | Callable[..., Any]) -> str:
    """The environment's name in run folders and titles."""
    if isinstance(env, str):
        return env.rpartition(":")[2] or env
    from envfleet.fleet.wrapping import WrappedEnv

    if isinstance(env, WrappedEnv):
        return name_of(env.env)
    return getattr(env, "__name__", type(env).__name__)
