"""Which environments of Gymnasium need which of our extras."""

from __future__ import annotations

import importlib.util
from typing import Any

from envfleet.errors import MissingExtraError

__all__ = ["refuse_missing_extra"]

# Where an environment's class is -> the module that it needs, and the extra that installs it.
_NEEDED = {
    "gymnasium.envs.box2d": ("Box2D", "box2d"),
    "gymnasium.envs.mujoco": ("mujoco", "mujoco"),
}


def refuse_missing_extra(entry_point: Any) -> None:
    """MissingExtraError if the class at `entry_point` (module:Class) needs something that is not installed."""
    package = ".".join(str(entry_point).partition(":")[0].split(".")[:3])
    module, extra = _NEEDED.get(package, (None, None))
    if module is not None and not _is_installed(module):
        raise MissingExtraError(
            f"the environment {str(entry_point).rpartition(':')[2]} needs {module}, which is not installed",
            hint=f'pip install "envfleet[{extra}]"',
        )


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # ValueError: a module without a spec stands in for it
        return False
