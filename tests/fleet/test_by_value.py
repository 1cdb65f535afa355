"""Modules of the user travel to machines that do not have them; installed ones are named."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from envfleet.fleet.backends.by_value import by_value, dumped_by_value
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


def test_two_threads_pickle_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread leaves the block while another is in the middle of it."""
    (tmp_path / "my_other_env_of_test.py").write_text("def make():\n    return 42\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("my_other_env_of_test")
    pickling, left = threading.Event(), threading.Event()

    def slow_dump(value: Any) -> bytes:
        pickling.set()
        assert left.wait(100.0)
        return dump(value)

    monkeypatch.setattr("envfleet.fleet.backends.by_value.dump", slow_dump)
    found: list[bytes] = []
    thread = threading.Thread(target=lambda: found.append(dumped_by_value(module.make)))
    with by_value():
        thread.start()
        pickling.wait(0.2)  # it has to wait
    left.set()
    thread.join()
    monkeypatch.delitem(sys.modules, module.__name__)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place != str(tmp_path)])
    assert pickle.loads(found[0])() == 42


def test_installed_modules_and_envfleet_are_named() -> None:
    import gymnasium

    from envfleet.fleet.spec import group_ranges

    assert len(dumped_by_value(gymnasium.Wrapper)) < 200
    assert len(dumped_by_value(group_ranges)) < 200
