"""A run that is killed again and again: children forked from a warm process, each killed after a random moment."""

from __future__ import annotations

import logging
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from envfleet.runs.checkpoints import Checkpoints


def killed_when(due: Callable[[], bool], work: Callable[[], object]) -> bool:
    """Does the work in a forked child that is killed by SIGKILL when it is `due`; whether it was before its end."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            logging.disable(logging.CRITICAL)
            work()
            code = 0
        finally:
            os._exit(code)  # nothing of pytest may go on in here
    while not due():
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0, "the run failed by itself"
            return False
        time.sleep(0.001)
    orphans = psutil.Process(child).children(recursive=True)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    _, alive = psutil.wait_procs(orphans, timeout=5)
    assert not alive, "workers outlived the run"
    return True


def kill_until_done(
    folder: Path, begin: Callable[[], object], go_on: Callable[[], object], *, kills: int, seed: int
) -> int:
    """Begins a run and resumes it until it is done; the first `kills` attempts are killed at random moments.

    Moments are counted in checkpoints, not in seconds alone, so that a quick machine is not done too early: at the
    start of an attempt, or up to a few milliseconds (an update, the writing of a checkpoint) after it has saved a
    little more than the one before.
    """
    moments = random.Random(seed)
    checkpoints = Checkpoints(folder / "checkpoints")
    for done in range(kills):
        wanted = moments.choice([0, 1, 2, 3])
        delay = moments.uniform(0.0, 0.1 if wanted == 0 else 0.03)
        if not _is_begun(folder):  # killed while the folder was made: there is nothing to resume, and a user removes it
            shutil.rmtree(folder, ignore_errors=True)
        last = checkpoints.steps()[-1:] or [0]
        if not killed_when(_Due(checkpoints, last[0], wanted, delay), go_on if _is_begun(folder) else begin):
            return done
    assert not killed_when(lambda: False, go_on if _is_begun(folder) else begin)
    return kills


def _is_begun(folder: Path) -> bool:
    return (folder / "config.yaml").exists()


class _Due:
    """True some seconds after so many checkpoints beyond `last` were seen."""

    def __init__(self, checkpoints: Checkpoints, last: int, wanted: int, delay: float) -> None:
        self._checkpoints, self._last, self._wanted, self._delay = checkpoints, last, wanted, delay
        self._at: float | None = None

    def __call__(self) -> bool:
        newest = (self._checkpoints.steps()[-1:] or [0])[0]
        if newest > self._last:
            self._last, self._wanted = newest, self._wanted - 1
        if self._at is None and self._wanted <= 0:
            self._at = time.monotonic() + self._delay
        return self._at is not None and time.monotonic() >= self._at
