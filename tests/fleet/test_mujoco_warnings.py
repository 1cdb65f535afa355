"""MuJoCo says the same about every model; a fleet of many says it once, or not at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from envfleet.fleet.mujoco_warnings import limit_mujoco_warnings

pytest.importorskip("mujoco")

PROGRAM = """
import sys
import envfleet

def build():
    import gymnasium, mujoco
    for _ in range(2):
        mujoco.get_mju_user_warning()("a strange model")  # as MuJoCo itself does
    return gymnasium.make("CartPole-v1")

if sys.argv[1] == "registered":  # today's Gymnasium uses an attribute of its model that MuJoCo 4 calls deprecated
    envfleet.make("HalfCheetah-v5", 3, backend="sequential").close()
else:
    import mujoco
    if sys.argv[1] == "own handler":
        mujoco.set_mju_user_warning(lambda message: print("mine:", message))
    envfleet.make(build, 3, backend="sequential").close()
"""


@pytest.mark.parametrize(
    ("case", "said"),
    [("registered", ""), ("own model", "MuJoCo: a strange model\n"), ("own handler", "mine: a strange model\n" * 6)],
)
def test_a_warning_comes_once_and_leaves_no_file(case: str, said: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, case]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == said
    assert not list(tmp_path.iterdir())  # MuJoCo's own handler writes MUJOCO_LOG.TXT


def test_a_module_that_another_thread_imports_right_now_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("mujoco")
    monkeypatch.setitem(sys.modules, "mujoco", module)
    limit_mujoco_warnings()
    assert vars(module) == vars(ModuleType("mujoco"))
