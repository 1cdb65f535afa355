"""Envfleet: train one agent in a fleet of parallel environments.

`import envfleet` loads nothing heavy; names are imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from envfleet.environments import register_with_gymnasium

if TYPE_CHECKING:
    from envfleet.algorithms.settings import DQN, PPO, SAC
    from envfleet.conformance import CheckReport
    from envfleet.errors import (
        ActionError,
        CheckpointError,
        ClosedError,
        EnvContext,
        EnvError,
        EnvfleetError,
        EnvHungError,
        MissingExtraError,
        ObservationError,
        ProtocolError,
        ResourceError,
        SettingsError,
        StateError,
        TrainingError,
        UnsupportedError,
        WorkerError,
    )
    from envfleet.fleet.cluster import ClusterSettings
    from envfleet.fleet.fleet import Fleet
    from envfleet.fleet.make import make
    from envfleet.fleet.pool import Pool, PoolMaker
    from envfleet.fleet.spec import Restarts, Timeouts
    from envfleet.fleet.statistics import FleetStatistics, WorkerStatistics
    from envfleet.rollout.collect import Collection, Trajectory, collect
    from envfleet.rollout.demonstrations import save_demonstrations
    from envfleet.runs.run import Run
    from envfleet.training import resume, train
    from envfleet.training.callbacks import Callback, Moment
    from envfleet.training.checking import check
    from envfleet.training.evaluating import RunEvaluation, evaluate_run

_HOMES = {
    "envfleet.algorithms.settings": ("DQN", "PPO", "SAC"),
    "envfleet.conformance": ("CheckReport",),
    "envfleet.errors": (
        "ActionError",
        "CheckpointError",
        "ClosedError",
        "EnvContext",
        "EnvError",
        "EnvHungError",
        "EnvfleetError",
        "MissingExtraError",
        "ObservationError",
        "ProtocolError",
        "ResourceError",
        "SettingsError",
        "StateError",
        "TrainingError",
        "UnsupportedError",
        "WorkerError",
    ),
    "envfleet.fleet.cluster": ("ClusterSettings",),
    "envfleet.fleet.fleet": ("Fleet",),
    "envfleet.fleet.make": ("make",),
    "envfleet.fleet.pool": ("Pool", "PoolMaker"),
    "envfleet.fleet.spec": ("Restarts", "Timeouts"),
    "envfleet.fleet.statistics": ("FleetStatistics", "WorkerStatistics"),
    "envfleet.rollout.collect": ("Collection", "Trajectory", "collect"),
    "envfleet.rollout.demonstrations": ("save_demonstrations",),
    "envfleet.runs.run": ("Run",),
    "envfleet.training": ("resume", "train"),
    "envfleet.training.callbacks": ("Callback", "Moment"),
    "envfleet.training.checking": ("check",),
    "envfleet.training.evaluating": ("RunEvaluation", "evaluate_run"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__version__ = "0.1.0"
__all__ = [  # noqa: RUF022  # in the order of sorted(), which dir() uses too
    "ActionError",
    "Callback",
    "CheckReport",
    "CheckpointError",
    "ClosedError",
    "ClusterSettings",
    "Collection",
    "DQN",
    "EnvContext",
    "EnvError",
    "EnvHungError",
    "EnvfleetError",
    "Fleet",
    "FleetStatistics",
    "MissingExtraError",
    "Moment",
    "ObservationError",
    "PPO",
    "Pool",
    "PoolMaker",
    "ProtocolError",
    "ResourceError",
    "Restarts",
    "Run",
    "RunEvaluation",
    "SAC",
    "SettingsError",
    "StateError",
    "Timeouts",
    "TrainingError",
    "Trajectory",
    "UnsupportedError",
    "WorkerError",
    "WorkerStatistics",
    "check",
    "collect",
    "evaluate_run",
    "make",
    "resume",
    "save_demonstrations",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'envfleet' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


register_with_gymnasium()
