"""A run that is killed again and again: children forked from a warm process, each killed after a random moment."""

from __future__ import annotations

import logging
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil


def killed_after(seconds: float, work: Callable[[], object]) -> bool:
    """Does the work in a forked child that is killed by SIGKILL after so long; whether it was killed before its end."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            logging.disable(logging.CRITICAL)
            work()
            code = 0
        finally:
            os._exit(code)  # nothing of pytest may go on in here
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0, "the run failed by itself"
            return False
        time.sleep(0.002)
    orphans = psutil.Process(child).children(recursive=True)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    _, alive = psutil.wait_procs(orphans, timeout=5)
    assert not alive, "workers outlived the run"
    return True


def kill_until_done(
    folder: Path,
    begin: Callable[[], object],
    go_on: Callable[[], object],
    *,
    kills: int,
    seed: int,
    seconds: tuple[float, float],
) -> int:
    """Begins a run and resumes it until it is done; the first `kills` attempts are killed after a random while."""
    moments = random.Random(seed)
    done = 0
    while True:
        limit = moments.uniform(*seconds) if done < kills else 120.0
        if not killed_after(limit, go_on if (folder / "config.yaml").exists() else begin):
            return done
        done += 1
        assert done <= kills, "the run did not come to its end"
