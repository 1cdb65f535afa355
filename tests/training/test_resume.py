"""A run that was killed at any moment ends with the same bytes as one that never was."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from envfleet.runs.checkpoints import Checkpoints
from envfleet.training import resume
from tests.training.chained_kills import kill_until_done
from tests.training.running import SMALL, run, weights

LONG: dict[str, Any] = {
    "n_envs": 8,
    "steps": 8 * 32 * 40,
    "checkpoint_every": 1,  # one after every update, so that many kills hit the writing of one
    "eval_every": 8 * 32 * 10,
    "eval_episodes": 1,
    "learning_rate_schedule": "linear",
}
FOUR_WAYS = pytest.mark.parametrize(
    ("schedule", "acting", "memory"),
    [
        ("sync", "worker", "none"),
        ("sync", "central", "gru"),
        ("overlap", "worker", "gru"),
        ("overlap", "central", "none"),
    ],
)


@pytest.mark.slow
@FOUR_WAYS
def test_chained_kills(tmp_path: Path, schedule: str, acting: str, memory: str) -> None:
    """Seven kills through each of four runs, at random moments of starting, training and saving."""
    options = {**LONG, "schedule": schedule, "acting": acting, "memory": memory}
    run(tmp_path / "whole", **options)
    broken = tmp_path / "broken"
    kills = kill_until_done(
        broken,
        lambda: run(broken, **options),
        lambda: resume(broken, quiet=True),
        kills=7,
        seed=len(schedule + acting + memory),
    )
    assert kills == 7
    assert weights(broken) == weights(tmp_path / "whole")
    assert steps_in(broken) == steps_in(tmp_path / "whole")


def steps_in(folder: Path) -> list[tuple[int, bool]]:
    """The steps of the metrics, and whether the row is an evaluation: none missing, none twice."""
    rows = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [(row["step"], "eval/mean_reward" in row) for row in rows]


SCRIPT = """
import sys
from envfleet.algorithms.settings import PPO
from envfleet.training import resume, train
if __name__ == "__main__":
    if sys.argv[1] == "train":
        train(PPO(**{settings!r}))
    else:
        resume({folder!r}, quiet=True)
"""


@pytest.mark.slow
def test_kills_of_whole_interpreters_with_worker_processes(tmp_path: Path) -> None:
    options = {**SMALL, **LONG, "env": "Acrobot-v1", "schedule": "overlap", "memory": "lstm", "steps": 8 * 32 * 24}
    options["eval_every"] = 0
    run(tmp_path / "whole", **options)
    broken = tmp_path / "broken"
    settings = {**options, "output_dir": str(broken), "backend": "processes", "workers": 2}
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(settings=settings, folder=str(broken)))
    moments = random.Random(1)
    for kill in range(4):
        what = "resume" if (broken / "config.yaml").exists() else "train"
        process = subprocess.Popen([sys.executable, str(script), what])
        try:
            if kill == 3:
                assert process.wait(100) == 0
                break
            wait_for_a_checkpoint(broken, process)
            time.sleep(moments.uniform(0.0, 0.2))
            os.kill(process.pid, signal.SIGKILL)
            assert process.wait(20) == -signal.SIGKILL
        finally:
            process.kill()
    assert weights(broken) == weights(tmp_path / "whole")


def wait_for_a_checkpoint(folder: Path, process: subprocess.Popen[bytes]) -> None:
    """Until the process has come further than whoever was killed before it."""
    checkpoints = Checkpoints(folder / "checkpoints")
    before = checkpoints.steps()[-1:]
    while checkpoints.steps()[-1:] == before:
        assert process.poll() is None, "the run ended by itself"
        time.sleep(0.005)
