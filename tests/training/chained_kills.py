"""A run that is killed again and again: children forked from a warm process, each killed at a random moment."""

from __future__ import annotations

import logging
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from envfleet.runs.checkpoints import Checkpoints
from tests.waiting import gone, wait_until

__all__ = ["kill_until_done", "stop_after"]

BEYOND = 2  # checkpoints that a child may save after the one that it is killed after


def kill_until_done(
    folder: Path, begin: Callable[[], object], go_on: Callable[[], object], *, kills: int, seed: int
) -> int:
    """Begins a run and resumes it until it is done; the first `kills` attempts are killed at random moments.

    Moments are counted in checkpoints, so that neither a quick machine is done too early nor a busy one kills too
    late: at the start of an attempt, or up to a few milliseconds (an update, the writing of a checkpoint) after it has
    saved some. It waits to be killed when it has saved five at the latest.
    """
    moments = random.Random(seed)
    for done in range(kills):
        saves = moments.choice([0, 1, 2, 3])
        delay = moments.uniform(0.0, 0.1 if saves == 0 else 0.03)
        if not _is_begun(folder):  # killed while the folder was made: there is nothing to resume, and a user removes it
            shutil.rmtree(folder, ignore_errors=True)
        if not _killed(go_on if _is_begun(folder) else begin, saves, delay):
            return done
    assert not _killed(go_on if _is_begun(folder) else begin)
    return kills


def _is_begun(folder: Path) -> bool:
    return (folder / "config.yaml").exists()


def _killed(work: Callable[[], object], saves: int | None = None, delay: float = 0.0) -> bool:
    """Does the work in a forked child that is killed `delay` seconds after so many saves; whether it was killed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reader)
            logging.disable(logging.CRITICAL)
            if saves is not None:
                stop_after(saves + BEYOND, saves, lambda: os.write(writer, b"."))
            work()
            code = 0
        finally:
            os._exit(code)  # nothing of pytest may go on in here
    os.close(writer)
    with open(reader, "rb") as pipe:
        due = pipe.read(1)  # nothing where the child has ended
    if not due:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "the run failed by itself"
        return False
    time.sleep(delay)
    workers = [worker.pid for worker in psutil.Process(child).children(recursive=True)]
    os.kill(child, signal.SIGKILL)
    killed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert wait_until(lambda: gone(workers)), "workers outlived the run"
    return killed


def stop_after(most: int, saves: int, tell: Callable[[], object]) -> None:
    """Lets this process save `most` checkpoints, then wait for its end; tells when it has saved `saves`."""
    save, count = Checkpoints.save, 0
    if saves == 0:
        tell()

    def counted(self: Checkpoints, *args: Any, **named: Any) -> Any:
        nonlocal count
        done = save(self, *args, **named)
        count += 1
        if count == saves:
            tell()
        if count == most:
            time.sleep(3600)
        return done

    Checkpoints.save = counted  # type: ignore[method-assign]
