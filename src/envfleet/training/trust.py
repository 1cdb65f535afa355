"""Code that a run refers to: imported only if the user trusts the run, or replaced by the user's objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from envfleet.algorithms.settings import TrainingSettings
from envfleet.errors import SettingsError
from envfleet.settings.values import plain
from envfleet.training.wrappers import name_and_arguments

__all__ = ["cannot_be_imported", "named_code", "refuse_untrusted"]


def named_code(settings: TrainingSettings) -> list[tuple[str, str]]:
    """Settings that name code as module:name, each with that name. Objects count by the name that a run records."""
    values: dict[str, Sequence[Any]] = {
        "env": [settings.env],
        "wrappers": [name_and_arguments(each)[0] if isinstance(each, dict) else each for each in settings.wrappers],
        # Not every algorithm has all of these settings.
        **{name: [getattr(settings, name, None)] for name in ("network", "policy", "demonstrations")},
    }
    recorded = [(name, plain(value)) for name, given in values.items() for value in given]
    return [(name, path) for name, path in recorded if isinstance(path, str) and ":" in path]


def cannot_be_imported(path: str) -> bool:
    """Whether the name refers to something in a script or inside a function."""
    return path.startswith("__main__:") or "<" in path


def refuse_untrusted(settings: TrainingSettings, given: Mapping[str, Any], *, trust: bool) -> None:
    """Raise a SettingsError if the run names code that is neither given as an object nor trusted."""
    paths = [(name, path) for name, path in named_code(settings) if name not in given]
    for name, path in paths:
        if cannot_be_imported(path):
            raise SettingsError(
                f"the run was trained from a script, with {name}={path}, which cannot be imported by that name",
                hint=f"give it from Python: envfleet.resume(path, {name}=...); or put it in a module of its own",
            )
    if paths and not trust:
        raise SettingsError(
            f"the run was trained with code that is not part of Envfleet: {', '.join(path for _, path in paths)}",
            hint="look at it, then say that you trust it: --trust (from Python: trust=True)",
        )
