"""Code that a run refers to: imported only if the user trusts the run, or replaced by the user's objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from envfleet.algorithms.settings import TrainingSettings, find_algorithm
from envfleet.errors import SettingsError
from envfleet.runs.folder import RunFolder
from envfleet.settings.declaration import code_settings
from envfleet.settings.values import plain
from envfleet.training.wrappers import name_and_arguments

__all__ = ["EVALUATED_WITH", "cannot_be_imported", "named_code", "refuse_untrusted", "trusted_algorithm"]

EVALUATED_WITH = frozenset({"env", "policy"})  # settings that `evaluate_run` takes as objects


def named_code(settings: TrainingSettings) -> list[tuple[str, str]]:
    """Settings that name code as module:name, each with that name. Objects count by the name that a run records."""
    found = [("algorithm", settings.recorded_name())]
    for name in code_settings(type(settings)):
        value = getattr(settings, name)
        given = value if isinstance(value, tuple) else (value,)
        found += [(name, plain(name_and_arguments(each)[0] if isinstance(each, dict) else each)) for each in given]
    return [(name, path) for name, path in found if isinstance(path, str) and ":" in path]


def cannot_be_imported(path: str) -> bool:
    """Whether the name refers to something in a script or inside a function."""
    return path.startswith("__main__:") or "<" in path


def refuse_untrusted(settings: TrainingSettings, given: Mapping[str, Any], *, trust: bool, playing: bool) -> None:
    """Raise a SettingsError if the run names code that is neither given as an object nor trusted.

    `playing` says that the run is opened for playing, not for training; the hint depends on it.
    """
    paths = [(name, path) for name, path in named_code(settings) if name not in given]
    _refuse(paths, trust=trust, playing=playing)


def trusted_algorithm(folder: RunFolder, given: Any, *, trust: bool) -> type[TrainingSettings] | None:
    """The algorithm of a run if it is not part of Envfleet: as given, or imported if the user trusts the run."""
    name = str(folder.read_config().get("algorithm"))
    if given is not None or ":" not in name:
        return given  # type: ignore[no-any-return]  # checked by the settings that it reads
    _refuse([("algorithm", name)], trust=trust, playing=False)
    return find_algorithm(name)


def _refuse(paths: Sequence[tuple[str, str]], *, trust: bool, playing: bool) -> None:
    for name, path in paths:
        if cannot_be_imported(path):
            raise SettingsError(
                f"the run was trained from a script, with {name}={path}, which cannot be imported by that name",
                hint=f"{_from_python(name, playing=playing)}; or put it in a module of its own",
            )
    if paths and not trust:
        raise SettingsError(
            f"the run was trained with code that is not part of Envfleet: {', '.join(path for _, path in paths)}",
            hint="look at it, then say that you trust it: --trust (from Python: trust=True)",
        )


def _from_python(name: str, *, playing: bool) -> str:
    if not playing:
        return f"give it from Python: envfleet.resume(path, {name}=...)"
    if name in EVALUATED_WITH:
        return f"give it from Python: envfleet.evaluate_run(path, {name}=...)"
    return "use its policy from Python: envfleet.Run.load(path, policy=...).policy.act(observation)"
