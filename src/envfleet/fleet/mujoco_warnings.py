"""MuJoCo's warnings, once per process.

MuJoCo prints a warning for every model that is built, and appends it to MUJOCO_LOG.TXT in the current folder. A fleet
builds many models of one kind, so the same line would come dozens of times, and again with every evaluation.
"""

from __future__ import annotations

import sys

__all__ = ["limit_mujoco_warnings"]

_printed: set[str] = set()


def limit_mujoco_warnings() -> None:
    """Print each of MuJoCo's warnings once from now on, and deprecations not at all, as Python does.

    Has no effect if MuJoCo was not imported, or if the user handles its warnings.
    """
    mujoco = sys.modules.get("mujoco")
    if not all(hasattr(mujoco, name) for name in ("get_mju_user_warning", "set_mju_user_warning")):
        return  # not imported, or another thread is importing it right now
    assert mujoco is not None
    if mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(_print_once)


def _print_once(message: str) -> None:
    if "deprecated" not in message and message not in _printed:
        _printed.add(message)
        sys.stderr.write(f"MuJoCo: {message}\n")
