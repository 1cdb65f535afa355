"""How MuJoCo renders on a machine without a screen.

MuJoCo draws with OpenGL, and the environment variable MUJOCO_GL says how: `glfw` needs a screen, `egl` and `osmesa` do
not. If it is unset, Gymnasium tries GLFW first, which fails without a screen only after it was chosen.
"""

from __future__ import annotations

import os
import sys

__all__ = ["render_without_screen"]

_SCREENS = ("DISPLAY", "WAYLAND_DISPLAY")


def render_without_screen() -> None:
    """Let MuJoCo render with EGL from now on, if this process has no screen and the user has not chosen otherwise.

    To be called in the process of an environment that renders, after it was built: with MUJOCO_GL set, importing
    MuJoCo fails if the machine lacks the library, even for environments that never render. Gymnasium reads the
    variable at the first frame.
    """
    has_screen = sys.platform != "linux" or any(os.environ.get(name) for name in _SCREENS)
    if "mujoco" in sys.modules and not has_screen and not os.environ.get("MUJOCO_GL"):
        os.environ["MUJOCO_GL"] = "egl"
