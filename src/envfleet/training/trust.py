"""Code that a run names: imported only where the user trusts the run, or replaced by objects that the user gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from envfleet.algorithms.settings import TrainingSettings
from envfleet.errors import SettingsError

__all__ = ["refuse_untrusted"]


def refuse_untrusted(settings: TrainingSettings, given: Mapping[str, Any], *, trust: bool) -> None:
    """SettingsError where the run recorded names of code that are neither given as objects nor trusted."""
    recorded: dict[str, Sequence[Any]] = {
        "env": [settings.env],
        "wrappers": settings.wrappers,
        **{
            name: [getattr(settings, name, None)] for name in ("network", "policy", "demonstrations")
        },  # not every algorithm has both
    }
    paths = [
        (name, path)
        for name, values in recorded.items()
        for path in values
        if isinstance(path, str) and ":" in path and name not in given
    ]
    for name, path in paths:
        if path.startswith("__main__:") or "<" in path:
            raise SettingsError(
                f"the run was trained from a script, with {name}={path}, which cannot be imported by that name",
                hint=f"give it from Python: envfleet.resume(path, {name}=...); or put it in a module of its own",
            )
    if paths and not trust:
        raise SettingsError(
            f"the run was trained with code that is not part of Envfleet: {', '.join(path for _, path in paths)}",
            hint="look at it, then say that you trust it: --trust (from Python: trust=True)",
        )
