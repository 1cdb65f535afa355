"""Presets by name: settings that apply if the user does not give them.

The presets for families of environments are elsewhere: those of an algorithm in `algorithms/*_presets.py`, those of a
built-in environment in `envfleet.environments.presets`. The named presets here work with any algorithm.
"""

from __future__ import annotations

from collections.abc import Callable

from envfleet.algorithms.common_settings import TrainingSettings
from envfleet.environments.presets import named_presets
from envfleet.errors import SettingsError
from envfleet.machine import usable_cores
from envfleet.settings.declaration import kinds_of
from envfleet.settings.presets import Preset

__all__ = ["NAMED", "named_preset"]


def _auto_scale() -> Preset:
    cores = usable_cores()
    values = {"n_envs": min(8, cores), "workers": max(1, cores // 2), "backend": "threads"}
    return Preset("auto-scale", values)


NAMED: dict[str, Callable[[], Preset]] = {
    "auto-scale": _auto_scale,
    "low-memory": lambda: Preset(
        "low-memory", {"n_envs": 2, "replay_size": 10_000, "minibatch_size": 16}, {"grid_size": 20}
    ),
    "max-throughput": lambda: Preset(
        "max-throughput", {"n_envs": 64, "schedule": "overlap", "train_frequency": 16, "minibatch_size": 128}
    ),
    "faster": lambda: Preset("faster", {"train_frequency": 2}, {"steps_per_episode": 30}),
    "debug": lambda: Preset("debug", {"n_envs": 1, "backend": "sequential", "verbose": True}),
}


def named_preset(name: str, settings: TrainingSettings) -> Preset:
    """The named preset of the algorithm, of any algorithm or of a built-in environment.

    It is reduced to settings that the algorithm has.
    """
    named, of_environments = {**NAMED, **settings.named_presets()}, named_presets()
    if name not in named and name not in of_environments:
        raise SettingsError(
            f"{settings.algorithm} has no preset {name!r}, expected one of {', '.join([*named, *of_environments])}",
            hint="envfleet train sac has it" if name == "sample-efficient" else None,
        )
    preset, known = named[name]() if name in named else of_environments[name], kinds_of(type(settings))
    return Preset(name, {key: value for key, value in preset.values.items() if key in known}, preset.env)
