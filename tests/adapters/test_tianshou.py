"""The fleet behaves like Tianshou's own vector environments."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path

import pytest

from benchmarks.peers.install import install, python_of
from envfleet.errors import MissingExtraError

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(importlib.util.find_spec("tianshou") is not None, reason="tianshou is installed")
def test_without_tianshou_the_error_says_what_to_install() -> None:
    with pytest.raises(MissingExtraError, match="pip install tianshou"):
        importlib.import_module("envfleet.adapters.tianshou")


@pytest.mark.proof
def test_every_value_is_that_of_tianshous_own() -> None:
    """Runs in Tianshou's own virtual environment under `.venvs`, which is created if missing."""
    absent = install("tianshou")
    assert absent is None, f"tianshou cannot be installed: {absent}"
    program = Path(__file__).with_name("tianshou_program.py")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [str(python_of("tianshou")), str(program)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
