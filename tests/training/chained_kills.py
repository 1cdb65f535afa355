"""A run that is killed repeatedly: each attempt is a fork of a warm process, killed at a random moment."""

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
import torch

from envfleet.runs.checkpoints import Checkpoints
from tests.waiting import gone, wait_until

__all__ = ["kill_until_done", "stop_after"]

BEYOND = 2  # how many more checkpoints a child may save after the one that triggers its kill


def kill_until_done(
    folder: Path, begin: Callable[[], object], go_on: Callable[[], object], *, kills: int, seed: int
) -> int:
    """Start a run and resume it until it is done; the first `kills` attempts are killed at random moments.

    Moments are counted in saved checkpoints, so that a fast machine does not finish too early and a busy one is not
    killed too late. The kill comes at the start of an attempt or a few milliseconds after a save, within an update or
    the writing of a checkpoint. An attempt saves at most five checkpoints and then waits to be killed.
    """
    moments = random.Random(seed)
    for done in range(kills):
        saves = moments.choice([0, 1, 2, 3])
        delay = moments.uniform(0.0, 0.1 if saves == 0 else 0.03)
        if not _is_begun(folder):  # killed while creating the folder: nothing to resume, and a user would delete it
            shutil.rmtree(folder, ignore_errors=True)
        if not _killed(go_on if _is_begun(folder) else begin, saves, delay):
            return done
    assert not _killed(go_on if _is_begun(folder) else begin)
    return kills


def _is_begun(folder: Path) -> bool:
    return (folder / "config.yaml").exists()


def _killed(work: Callable[[], object], saves: int | None = None, delay: float = 0.0) -> bool:
    """Run `work` in a forked child, kill it `delay` seconds after `saves` checkpoints; return whether it was killed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reader)
            logging.disable(logging.CRITICAL)
            torch.set_num_threads(1)  # OpenMP's threads do not exist in a forked child; waiting for them would not end
            if saves is not None:
                stop_after(saves + BEYOND, saves, lambda: os.write(writer, b"."))
            work()
            code = 0
        finally:
            os._exit(code)  # pytest must not continue in the child
    os.close(writer)
    with open(reader, "rb") as pipe:
        due = pipe.read(1)  # empty if the child has exited
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
    """Let this process save `most` checkpoints and then sleep until it is killed; call `tell` after `saves` of them."""
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
