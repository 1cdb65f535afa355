"""Training leaves the calling process as it was: torch threads, our own threads, freed memory."""

from __future__ import annotations

import platform
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch

from envfleet.errors import SettingsError
from envfleet.fleet.backends import output
from envfleet.training.callbacks import Callback
from envfleet.training.process import TunedProcess
from tests.training.running import run


class Seen(Callback):
    """Records thread counts during training."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails, self.torch_threads, self.learners = fails, 0, 0

    def on_update(self, moment: Any) -> None:
        self.torch_threads, self.learners = torch.get_num_threads(), len(ours())
        if self.fails:
            raise RuntimeError("a callback fails")


def ours() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("envfleet-learner")]


@pytest.mark.parametrize("changes", [{}, {"acting": "central", "schedule": "overlap"}])
@pytest.mark.parametrize("fails", [False, True])
def test_threads_are_as_before(tmp_path: Path, changes: dict[str, Any], fails: bool) -> None:
    torch.set_num_threads(3)  # the fixture restores it
    seen = Seen(fails=fails)
    with pytest.raises(RuntimeError, match="a callback fails") if fails else nullcontext():
        run(tmp_path, [seen], learner_threads=2, **changes)
    assert seen.torch_threads == 1
    assert seen.learners == 1  # in addition to the caller's thread
    assert torch.get_num_threads() == 3
    assert ours() == []


def test_a_training_that_cannot_begin_changes_nothing(tmp_path: Path) -> None:
    torch.set_num_threads(3)
    with pytest.raises(SettingsError, match="Nonsense"):
        run(tmp_path, policy="json:Nonsense")
    assert torch.get_num_threads() == 3


def test_of_two_trainings_at_once_the_last_one_puts_it_back() -> None:
    torch.set_num_threads(3)
    first = TunedProcess()
    second = TunedProcess()
    first.release()
    first.release()
    assert torch.get_num_threads() == 1
    second.release()
    assert torch.get_num_threads() == 3


MEMORY = """
import sys
import numpy as np
import psutil
from pathlib import Path
from tests.training.running import run

def kept_of_freed():
    \"\"\"MiB that stay with the process after it has freed a hundred.\"\"\"
    before = psutil.Process().memory_info().rss
    np.ones(100 * 2**17)
    return (psutil.Process().memory_info().rss - before) / 2**20

from envfleet.training.callbacks import Callback
class Measures(Callback):
    def on_update(self, moment):
        kept.append(kept_of_freed())
        moment.stop = True
kept = []
run(Path(sys.argv[1]), [Measures()])
print(kept[0] > 90, kept_of_freed() < 10)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_memory_goes_back_to_the_system_afterwards(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MEMORY, str(tmp_path / "run")]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.stdout.split() == ["True", "True"], finished.stdout + finished.stderr


def test_a_training_prints_for_its_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From before the first worker starts until after the last one ends; see tests/fleet/test_output.py."""
    events: list[str] = []

    @contextmanager
    def printed_by_caller() -> Iterator[None]:
        events.append("begin")
        yield
        events.append("end")

    def build() -> Any:
        events.append("build")
        return gymnasium.make("CartPole-v1")

    monkeypatch.setattr(output, "printed_by_caller", printed_by_caller)
    run(tmp_path / "run", steps=12 * 32, env=build)
    assert (events[0], events[1], events[-1]) == ("begin", "build", "end")
    assert events.count("begin") == 1
