"""Training while workers are killed and environments raise: nothing leaks, and learning continues."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from benchmarks.soak import unsteady_cart_pole
from envfleet.training.callbacks import Callback, Moment
from tests.training.running import run
from tests.training.test_faults import workers_of_this_process

KILLS = 4


class Kills(Callback):
    """Kills a worker after each of the first updates; records this process's resources while no worker is starting."""

    def __init__(self) -> None:
        self.held: list[tuple[int, int, int]] = []
        self.restarts = 0.0

    def on_update(self, moment: Moment) -> None:
        me = psutil.Process()
        self.held.append((me.num_fds(), me.num_threads(), len(me.children(recursive=True))))
        self.restarts = max(self.restarts, moment.metrics.get("fleet/restarts", 0.0))
        if len(self.held) <= KILLS:
            workers = workers_of_this_process()
            os.kill(workers[len(self.held) % len(workers)], signal.SIGKILL)


def test_a_few_kills_leave_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envfleet.training.reporting.HEALTH_SECONDS", 0.0)
    options = {"backend": "processes", "workers": 2, "acting": "central", "n_envs": 8}
    options |= {"group_size": 4, "steps": 8 * 32 * (KILLS + 2), "env": unsteady_cart_pole, "on_error": "restart"}
    kills = Kills()
    run(tmp_path / "run", [kills], env_kwargs={"raise_every": 200}, **options)
    assert kills.restarts == KILLS
    first, last = kills.held[0], kills.held[-1]
    assert all(now <= then for now, then in zip(last, first, strict=True)), kills.held
    assert workers_of_this_process() == []


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_memory_and_descriptors_stay_flat_for_two_minutes_and_learning_goes_on(tmp_path: Path) -> None:
    """A worker is killed every four seconds. Runs in a separate process, to measure the memory of training alone."""
    path = tmp_path / "figures.json"
    command = [sys.executable, "-m", "benchmarks.soak", "--json", str(path)]
    # Each worker is killed about four times, and environments raise now and then. More would end the training, because
    # restarts are limited and their delay grows.
    command += ["--minutes", "2", "--kill-every", "4", "--workers", "8", "--acting", "central"]
    root = Path(__file__).parents[2]
    subprocess.run([*command, "--raise-every", "50000"], check=True, cwd=root, stderr=subprocess.DEVNULL)
    figures = json.loads(path.read_text())["soak"]
    assert figures["kills"] >= 20
    assert figures["restarts"] >= figures["kills"] - 4  # the last kills may not have been noticed
    assert figures["lost_rows"] >= 4 * figures["restarts"]  # a group per restart, and a row per env that raised
    assert figures["growth_mb"] < 4.0
    assert figures["descriptors_after"] <= figures["descriptors_before"]
    assert figures["children_left"] == 0
    assert figures["last_return"] > 3 * figures["first_return"]
