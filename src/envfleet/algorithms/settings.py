"""The settings of all algorithms, built-in or from other packages. Importing this does not load torch."""

from __future__ import annotations

import difflib
from importlib.metadata import entry_points
from typing import Any

from envfleet.algorithms.common_settings import BACKENDS, DEFAULT_STEPS, HARMLESS, TrainingSettings
from envfleet.algorithms.dqn_settings import DQN
from envfleet.algorithms.ppo_settings import PPO
from envfleet.algorithms.sac_settings import SAC
from envfleet.errors import SettingsError
from envfleet.importing import imported

__all__ = [
    "ALGORITHMS",
    "BACKENDS",
    "DEFAULT_STEPS",
    "DQN",
    "HARMLESS",
    "PPO",
    "SAC",
    "TrainingSettings",
    "find_algorithm",
    "installed_algorithms",
]

ALGORITHMS: dict[str, type[TrainingSettings]] = {"dqn": DQN, "ppo": PPO, "sac": SAC}
ENTRY_POINTS = "envfleet.algorithms"  # the group in which other packages name theirs


def installed_algorithms() -> dict[str, str]:
    """Return the algorithms that other installed packages declare: name -> module:Class. Imports none of them."""
    return {point.name: point.value for point in entry_points(group=ENTRY_POINTS) if point.name not in ALGORITHMS}


def find_algorithm(name: str) -> type[TrainingSettings]:
    """Return the settings class of an algorithm: built-in, of an installed package, or named as module:Class.

    This imports the module of an algorithm that is not built in.
    """
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    installed = installed_algorithms()
    path = name if ":" in name else installed.get(name)
    if path is None:
        known = {each.lower(): each for each in [*ALGORITHMS, *installed]}
        near = [known[each] for each in difflib.get_close_matches(name.lower(), known, n=1)]
        raise SettingsError(
            f"unknown algorithm {name!r}, expected one of {', '.join(known.values())}, or your own as module:Class",
            hint=f"did you mean `envfleet train {near[0]}`?" if near else "docs/own-algorithm.md shows how to add one",
        )
    return _checked(imported(path), path)


def _checked(kind: Any, path: str) -> type[TrainingSettings]:
    if not (isinstance(kind, type) and issubclass(kind, TrainingSettings)):
        raise SettingsError(
            f"{path} is {getattr(kind, '__name__', type(kind).__name__)}, expected a subclass of TrainingSettings",
            hint="name the settings class of the algorithm, not its learner",
        )
    return kind
