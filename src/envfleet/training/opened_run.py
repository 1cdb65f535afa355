"""Opens a run for playing: its settings, its policy and its environment."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envfleet.algorithms.settings import ALGORITHMS, TrainingSettings
from envfleet.errors import SettingsError
from envfleet.runs.checkpoints import Checkpoints
from envfleet.runs.folder import RunFolder
from envfleet.runs.trained_policy import TrainedPolicy
from envfleet.settings.declaration import kinds_of
from envfleet.training.stage import Stage
from envfleet.training.trust import refuse_untrusted
from envfleet.training.wrappers import environment_of

__all__ = ["OpenedRun", "recorded_settings"]


@dataclass(frozen=True)
class OpenedRun:
    """A run opened for playing: its policy, and the environment it was trained in."""

    folder: RunFolder
    settings: TrainingSettings
    checkpoint: str
    step: int
    policy: TrainedPolicy
    env: Any

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        checkpoint: str | None,
        trust: bool,
        env: Any = None,
        policy: Any = None,
        env_kwargs: Mapping[str, Any] | None = None,
    ) -> OpenedRun:
        """Open the run at `path`, with the arguments of `evaluate_run`."""
        folder = RunFolder.open(path)
        settings = recorded_settings(folder)
        given = {name: value for name, value in (("env", env), ("policy", policy)) if value is not None}
        refuse_untrusted(settings, given, trust=trust, playing=True)
        stored = Checkpoints(folder.checkpoints)
        name = checkpoint or stored.default
        loaded = stored.load(name)
        source = environment_of(settings.env if env is None else env, settings.wrappers)
        spaces = None
        if env_kwargs:
            settings = settings.but(env_kwargs={**settings.env_kwargs, **env_kwargs})
            with contextlib.closing(Stage(source, settings)) as stage:
                spaces = stage.apply(_spaces)
        trained = TrainedPolicy.load(
            loaded.state["policy"], loaded.policy, policy=policy, trust=trust, other_spaces=spaces
        )
        return cls(folder, settings, name, loaded.step, trained, source)

    def takes_best(self, asked: bool | None) -> bool:
        """Whether to take the best actions: `asked`, or as in the run's own evaluations if None."""
        return not self.settings.eval_sampled if asked is None else asked


def _spaces(env: Any) -> tuple[Any, Any]:
    return env.observation_space, env.action_space


def recorded_settings(folder: RunFolder, algorithm: type[TrainingSettings] | None = None) -> TrainingSettings:
    """Load the settings that a run was trained with.

    If its algorithm is neither built in nor given, these are only the settings that all algorithms have.
    """
    recorded = folder.read_config()
    name = str(recorded.pop("algorithm", None))
    kind = algorithm or ALGORITHMS.get(name)
    if kind is None and ":" not in name:
        raise SettingsError(f"{folder.config} says algorithm: {name}, expected one of {', '.join(ALGORITHMS)}")
    if kind is None:
        kind = TrainingSettings
        recorded = {key: value for key, value in recorded.items() if key in kinds_of(kind)}
    return kind.from_mapping(recorded, source=str(folder.config))
