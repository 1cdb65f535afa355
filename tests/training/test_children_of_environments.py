"""Environments with child processes, which they end in close()."""

from __future__ import annotations

import multiprocessing
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

from tests.training.running import run

# Popen waits until its pipe is closed, but a process forked by another thread meanwhile would keep it open.
STARTING = threading.Lock()


class HasChildren(CartPoleEnv):
    """Starts a forked process and a program, as simulators with a server do; ends them with SIGTERM."""

    def __init__(self, log: str) -> None:
        super().__init__()
        self.log = log
        self._processes: list[Any] = []

    def step(self, action: Any) -> Any:
        if not self._processes:  # not in __init__: by now the run has installed its signal handlers
            forked = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,), daemon=True)
            with STARTING:
                forked.start()
                self._processes = [forked, subprocess.Popen(["sleep", "600"])]
        return super().step(action)

    def __getstate__(self) -> Any:
        raise TypeError("processes cannot be saved")

    def close(self) -> None:
        if self._processes:
            forked, program = self._processes
            forked.terminate()
            program.terminate()
            forked.join(100.0)  # without a time-out it could hang the run
            forked.kill()
            ends = (forked.exitcode, program.wait(100.0))
            with Path(self.log).open("a") as file:
                file.write(f"{ends == (-signal.SIGTERM, -signal.SIGTERM)}\n")
        super().close()


def make_env(log: str) -> gymnasium.Env[Any, Any]:
    return gymnasium.wrappers.TimeLimit(HasChildren(log), 500)


@pytest.mark.parametrize(
    "backend",
    [
        {"backend": "sequential"},
        {"backend": "threads", "workers": 2},
        {"backend": "processes", "workers": 2},
    ],
    ids=lambda backend: backend["backend"],
)
def test_they_end_by_sigterm(backend: dict[str, Any], tmp_path: Path) -> None:
    log = tmp_path / "log"
    run(tmp_path / "run", env=make_env, env_kwargs={"log": str(log)}, n_envs=4, acting="central", **backend)
    assert log.read_text() == "True\n" * 4
