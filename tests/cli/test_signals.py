"""Ctrl-C and SIGTERM while a run trains, with real processes: saved, one line, the conventional exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from envfleet.runs.checkpoints import Checkpoints

SECONDS = 60.0

SLOW = """
import time, gymnasium, numpy as np

class Slow(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        time.sleep(0.5)
        return np.zeros(2, np.float32), 1.0, False, False, {}
"""


@contextmanager
def training(folder: Path, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """A run that would go on for ever, in a group of processes of its own as a terminal has it."""
    command = [sys.executable, "-m", "envfleet.cli", "train", "ppo", "--output-dir", "run", "--backend", "processes"]
    process = subprocess.Popen(
        [*command, "--steps", "1000000000", "--eval-every", "0", *flags],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wait_for(what: Path, process: subprocess.Popen[str]) -> None:
    ends = time.monotonic() + SECONDS
    while not (what.exists() and what.stat().st_size):
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < ends, f"{what} did not come"
        time.sleep(0.05)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_ends(number: signal.Signals, code: int, tmp_path: Path) -> None:
    with training(tmp_path, "--quiet", "--seed", "1", "--n-envs", "8", "--workers", "2") as process:
        wait_for(tmp_path / "run" / "metrics.jsonl", process)
        workers = psutil.Process(process.pid).children(recursive=True)
        # A terminal sends Ctrl-C to all; a service manager tells the main process.
        os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
        _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == code
    last = Checkpoints(tmp_path / "run" / "checkpoints").load("last")
    assert errors == f"stopped at step {last.step:,}, everything is saved; go on with: envfleet resume run\n"
    assert not (tmp_path / "run" / "checkpoints" / "final").exists()
    assert len(workers) >= 2
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert not alive


def test_a_second_ctrl_c_does_not_wait_for_the_rollout(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    # A rollout takes 500 s: nothing but the second signal can end this in time.
    flags = ["--env", "slow:Slow", "--n-envs", "8", "--rollout-steps", "250", "--workers", "2"]
    with training(tmp_path, *flags) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("  folder"):  # the last of what is said before the first rollout
                break
        time.sleep(1.0)
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(1.0)
        assert process.poll() is None
        assert process.stderr.readline() == "\n"
        assert process.stderr.readline() == "stopping after this update; once more ends at once, without saving\n"
        workers = psutil.Process(process.pid).children(recursive=True)
        began = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert time.monotonic() - began < 30.0
    assert errors.splitlines()[-1] == "interrupted"
    assert "Traceback" not in errors
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert not alive
    assert not (tmp_path / "run").exists()  # nothing was trained, so the name is free again
