"""Which extra an environment needs, and which package registers it with Gymnasium."""

from __future__ import annotations

import importlib
import importlib.util
import platform
import re
import sys
from typing import Any

from envfleet.errors import MissingExtraError, SettingsError

__all__ = ["PROCGEN_MODULES", "import_provider", "procgen_installation", "refuse_missing_extra"]

# Modules that contain Procgen's library. No extra installs them, because they ask for an old NumPy.
PROCGEN_MODULES = ("procgen", "procgen_gym")

# Package or module of an environment's class -> the modules of which it needs one, and the extra that installs it.
_NEEDED: dict[str, tuple[tuple[str, ...], str | None]] = {
    "envfleet.environments.gameboy": (("pyboy",), "gameboy"),
    "envfleet.environments.meta.locomotion": (("mujoco",), "mujoco"),
    "envfleet.environments.meta.metaworld": (("metaworld",), "metaworld"),
    "envfleet.environments.procgen": (PROCGEN_MODULES, None),
    "gymnasium.envs.box2d": (("Box2D",), "box2d"),
    "gymnasium.envs.mujoco": (("mujoco",), "mujoco"),
}
# Ids that a well-known package registers on import -> its module, and what to pip install.
_PROVIDERS = {
    r"ALE/.*|\w+NoFrameskip-v\d": ("ale_py", '"envfleet[atari]"'),
    r"(MiniGrid|BabyAI)-.*": ("minigrid", "minigrid"),
    r"MiniWorld-.*": ("miniworld", "miniworld"),
    r"Meta-World/.*": ("metaworld", "metaworld"),
    r"(Fetch(Reach|Push|Slide|Pick)|Hand(Reach|Manipulate)|AdroitHand|(Ant|Point)Maze_|FrankaKitchen)\w*-v\d": (
        "gymnasium_robotics",
        "gymnasium-robotics",
    ),
}


def import_provider(env_id: str) -> None:
    """Import the package that registers `env_id`, if it is a well-known one: Gymnasium only knows imported packages."""
    for ids, (module, package) in _PROVIDERS.items():
        if re.fullmatch(ids, env_id):
            import gymnasium

            if env_id in gymnasium.registry:  # the module is already imported, or other code registered the id
                return
            if not _is_installed(module):
                raise MissingExtraError(
                    f"the environment {env_id} needs {module}, which is not installed", hint=f"pip install {package}"
                )
            try:
                importlib.import_module(module)
            except (ImportError, OSError) as error:
                raise SettingsError(
                    f"the environment {env_id} needs {module}, which cannot be imported: {error}",
                    hint=f'python -c "import {module}" shows where it fails',
                ) from error


def refuse_missing_extra(entry_point: Any) -> None:
    """Raise MissingExtraError if the class at `entry_point` (module:Class) needs a package that is not installed."""
    where = str(entry_point).partition(":")[0]
    for package, (modules, extra) in _NEEDED.items():
        if f"{where}.".startswith(f"{package}.") and not any(map(_is_installed, modules)):
            raise MissingExtraError(
                f"the environment {str(entry_point).rpartition(':')[2]} needs {modules[0]}, which is not installed",
                hint=procgen_installation() if extra is None else f'pip install "envfleet[{extra}]"',
            )


def procgen_installation() -> str:
    """The pip command that installs Procgen's library for this Python, or a sentence if there is no package."""
    system, processor = sys.platform, platform.machine()
    if (system, processor) != ("linux", "x86_64"):
        return f"no package has Procgen's library for {system} on {processor}; use Linux on x86_64"
    if sys.version_info >= (3, 13):
        return "pip install --no-deps procgen-gym==0.1.1"
    return "pip install --no-deps procgen-mirror==0.10.7"


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # ValueError: sys.modules holds a stand-in without a spec
        return False
