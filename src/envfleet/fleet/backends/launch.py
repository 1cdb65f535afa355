"""Starts processes in new interpreters or by fork, always from one long-lived thread.

The parent-death signal of a child fires when the *thread* that started it ends, so a fleet made in a
short-lived thread would lose its workers with it. All starts and restarts go through one daemon thread
that lives as long as the process. Signals are blocked during a start, because a new worker has no handlers yet.
"""

from __future__ import annotations

import functools
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import envfleet
from envfleet.fleet.backends.entry import SINGLE_THREADED, Links, live
from envfleet.fleet.backends.output import streams_of_workers
from envfleet.fleet.os_compat import open_pidfd, wait_ready
from envfleet.fleet.spec import WorkerSpec
from envfleet.signals import blocked

__all__ = ["Process", "fork_worker", "new_interpreter", "spawn_worker"]


class Process:
    """A started process: whether it is alive, and how it ended."""

    def __init__(self, pid: int, pidfd: int | None, exit_code: Callable[[], int | None]) -> None:
        """`exit_code` returns the exit code as `subprocess` has it, or None while the process is alive."""
        self.pid, self.pidfd, self._exit_code = pid, pidfd, exit_code
        self._ending: str | None = None

    def ending(self) -> str | None:
        """How the process ended; None while it is alive."""
        if self._ending is None:
            try:
                code = self._exit_code()
            except ChildProcessError:  # reaped by other code
                self._ending = "it ended"
            else:
                self._ending = None if code is None else _describe(code)
        return self._ending

    def signal(self, number: int) -> None:
        if self.ending() is None:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                pass

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds`; return whether the process has ended."""
        until = time.monotonic() + seconds
        while self.ending() is None:
            left = until - time.monotonic()
            if left <= 0:
                return False
            if self.pidfd is not None:
                wait_ready(self.pidfd, left)
            else:
                time.sleep(min(left, 0.005))
        return True

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.wait(10.0)

    def release(self) -> None:
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None


def _describe(code: int) -> str:
    if code >= 0:
        return f"it exited with code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return f"it was ended by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")


class _Launcher:
    """The thread that starts all processes of this interpreter."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="envfleet-launcher", daemon=True).start()

    def _run(self) -> None:
        while True:
            job, result = self._jobs.get()
            try:
                with blocked():
                    result.set_result(job())
            except BaseException as error:
                result.set_exception(error)

    def __call__(self, job: Callable[[], Any]) -> Any:
        result: Future[Any] = Future()
        self._jobs.put((job, result))
        return result.result()


@functools.cache
def _launcher() -> _Launcher:
    return _Launcher()


os.register_at_fork(after_in_child=_launcher.cache_clear)  # threads are not copied to a forked child


def _launch(job: Callable[[], Any]) -> Any:
    return _launcher()(job)


def new_interpreter(arguments: list[str], fds: list[int], streams: Mapping[int, int]) -> subprocess.Popen[bytes]:
    """Start `entry.main` in a new interpreter; `streams` replace the caller's stdout (1) and stderr (2)."""
    root = str(Path(envfleet.__file__).resolve().parents[1])
    # `python -c` puts the current folder first, so a user's `queue.py` would shadow the standard library's. Our own
    # folder is first only while this package is imported; the caller's sys.path comes with the spec.
    boot = (
        "import sys; sys.path[:] = filter(None, sys.path); "
        f"sys.path.insert(0, {root!r}); import envfleet; sys.path.append(sys.path.pop(0)); "
        "from envfleet.signals import leave_to_caller; leave_to_caller(); "
        "from envfleet.fleet.backends.entry import main; main(sys.argv[2:])"
    )
    command = [sys.executable, "-c", boot, *arguments]
    environment = {**os.environ, **SINGLE_THREADED}
    popen: subprocess.Popen[bytes] = _launch(
        lambda: subprocess.Popen(
            command,
            pass_fds=fds,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=streams.get(1),
            stderr=streams.get(2),
        )
    )
    return popen


def spawn_worker(links: Links) -> Process:
    """Start a worker in a new interpreter; its command line contains its name, for htop."""
    popen = new_interpreter([links.name, "worker", links.dump()], links.fds, streams_of_workers())
    return Process(popen.pid, open_pidfd(popen.pid), popen.poll)


def fork_worker(links: Links, spec: WorkerSpec, close_in_child: list[int]) -> Process:
    """Fork a worker from this process; the spec need not be pickled."""
    own = streams_of_workers()

    def job() -> int:
        pid = os.fork()
        if pid == 0:
            for fd in close_in_child:
                os.close(fd)
            for stream, terminal in own.items():
                os.dup2(terminal, stream)
            if own:  # the caller's streams write past its descriptors
                sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
            live(links, spec)
        return pid

    pid: int = _launch(job)
    return Process(pid, open_pidfd(pid), functools.partial(_child_exit_code, pid))


def _child_exit_code(pid: int) -> int | None:
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None
