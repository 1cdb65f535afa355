"""Meta-World: what happens without it, and its environments in a virtual environment of its own."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path

import gymnasium
import pytest

import envfleet
from benchmarks.peers.install import install, python_of
from envfleet.errors import MissingExtraError

ROOT = Path(__file__).parents[3]


@pytest.mark.skipif(importlib.util.find_spec("metaworld") is not None, reason="metaworld is installed")
@pytest.mark.parametrize("env", ["metaworld/ML1-reach-v3", "metaworld/ML10"])
def test_without_metaworld_the_error_says_what_to_install(env: str) -> None:
    with pytest.raises(MissingExtraError, match=r"needs metaworld, which is not installed") as caught:
        envfleet.make(env, 2)
    assert caught.value.hint == 'pip install "envfleet[metaworld]"'


def test_every_task_of_metaworld_has_an_id() -> None:
    ids = [name for name in gymnasium.registry if name.startswith("metaworld/")]
    assert len(ids) == 51 and "metaworld/ML10" in ids and "metaworld/ML1-window-close-v3" in ids
    assert gymnasium.spec("metaworld/ML1-reach-v3").kwargs == {"benchmark": "ML1-reach-v3"}


@pytest.mark.proof
def test_tasks_episodes_fleets_and_states() -> None:
    """Runs in Meta-World's own virtual environment under `.venvs`, which is created if missing."""
    absent = install("metaworld")
    assert absent is None, f"metaworld cannot be installed: {absent}"
    program = Path(__file__).with_name("metaworld_program.py")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [str(python_of("metaworld")), str(program)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
