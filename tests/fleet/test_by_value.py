"""Modules of the user travel to machines that do not have them; installed ones are named."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import cloudpickle
import pytest

from envfleet.fleet.backends.by_value import dumped_by_value
from envfleet.fleet.channel import dump


def test_a_module_of_the_user_and_its_helper_travel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_helper_of_test.py").write_text("def number():\n    return 41\n")
    (tmp_path / "my_env_of_test.py").write_text(
        "import gymnasium\nfrom my_helper_of_test import number\n\n"
        "def make():\n    assert isinstance(gymnasium.make('CartPole-v1'), gymnasium.Env)\n    return number() + 1\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("my_env_of_test")
    registered = set(cloudpickle.list_registry_pickle_by_value())
    packed = dumped_by_value(module.make)
    assert set(cloudpickle.list_registry_pickle_by_value()) == registered  # only while it is pickled
    program = "import sys, pickle; print(pickle.loads(sys.stdin.buffer.read())())"
    for data, works in ((packed, True), (dump(module.make), False)):
        done = subprocess.run([sys.executable, "-c", program], input=data, capture_output=True, check=False)
        assert (done.stdout.strip() == b"42") is works, done.stderr


def test_installed_modules_and_envfleet_are_named() -> None:
    import gymnasium

    from envfleet.fleet.spec import group_ranges

    assert len(dumped_by_value(gymnasium.Wrapper)) < 200
    assert len(dumped_by_value(group_ranges)) < 200
