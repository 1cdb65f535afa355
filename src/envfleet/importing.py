"""Objects named as `module:name`: environments, wrappers, networks and policies of the user."""

from __future__ import annotations

import difflib
import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from envfleet.errors import SettingsError

__all__ = ["imported", "imported_module", "make_folder_importable"]

_FRAMES_SHOWN = 5


def imported(path: str) -> Any:
    """Import the class or function that `module:name` names; the name may be qualified, as in `Outer.Inner`."""
    module_name, _, qualified_name = path.partition(":")
    found: Any = imported_module(module_name)
    for name in qualified_name.split("."):
        if not hasattr(found, name):
            near = difflib.get_close_matches(name, dir(found), n=3)
            raise SettingsError(
                f"module {module_name!r} has no {qualified_name!r}",
                hint=f"nearest: {', '.join(near)}" if near else "name a class or function of the module",
            )
        found = getattr(found, name)
    if not callable(found):
        raise SettingsError(f"{path} is {type(found).__name__}, expected a class or function")
    return found


def imported_module(name: str) -> ModuleType:
    """Import a module; raise a SettingsError that says why it cannot be imported."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise SettingsError(
                f"module {name!r} needs {error.name!r}, which is not installed",
                hint="install it, or fix the import",
            ) from error
        where = "modules are looked for among the installed packages and, by commands, in the current folder"
        if _belongs_to_run(Path.cwd()):
            where += ", but never in the folder of a run (it has a manifest.json): run the command from your own folder"
        raise SettingsError(f"there is no module {name!r}", hint=where) from error
    except Exception as error:
        raise SettingsError(f"module {name!r} raised while it was imported\n\n{_own_frames(error)}") from error


def _own_frames(error: Exception) -> str:
    """The last frames of the module's own code, and the exception."""
    passed_through = (__file__, importlib.__file__, "<frozen importlib")
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(passed_through)][-_FRAMES_SHOWN:]
    return "".join(traceback.format_list(own) + traceback.format_exception_only(error)).rstrip()


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
