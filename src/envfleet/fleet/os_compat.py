"""System calls that only some platforms have, each with a portable fallback.

Linux has eventfd (a doorbell in one descriptor), memfd (anonymous shared memory), pidfd (wait for a process
without a race) and the parent-death signal. Elsewhere, or with ENVFLEET_PORTABLE=1, a socket pair, an
unlinked temporary file, polling and a watcher thread replace them.
"""

from __future__ import annotations

import ctypes
import os
import platform
import select
import signal
import socket
import sys
import tempfile
import threading
import time

__all__ = [
    "Doorbell",
    "can_spin",
    "default_start_method",
    "die_with_parent",
    "name_process",
    "nameless_file",
    "open_pidfd",
    "queued_seconds",
    "uses_linux",
    "voluntary_switches",
    "wait_ready",
    "yield_core",
]

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


def uses_linux() -> bool:
    """Whether Linux-only calls are used; the environment variable ENVFLEET_PORTABLE=1 turns them off."""
    return sys.platform == "linux" and os.environ.get("ENVFLEET_PORTABLE", "") in ("", "0")


def default_start_method() -> str:
    """How worker processes are started; system libraries of macOS do not survive a fork."""
    return "forkserver" if uses_linux() else "spawn"


def can_spin() -> bool:
    """Whether processes may spin on a flag in shared memory, without a system call.

    x86 makes writes visible in order, so data written before a flag is visible once the flag is. Other processors
    guarantee that only through system calls, so there we always block.
    """
    return uses_linux() and platform.machine() in ("x86_64", "AMD64")


yield_core = getattr(os, "sched_yield", lambda: time.sleep(0))


class Doorbell:
    """Wakes a sleeping process or thread; one wake-up consumes all rings so far."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self.read_fd, self.write_fd = read_fd, write_fd
        self._poll = select.poll()
        self._poll.register(read_fd, select.POLLIN)

    @classmethod
    def create(cls) -> Doorbell:
        if uses_linux():
            fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            return cls(fd, fd)
        reader, writer = socket.socketpair()
        for end in (reader, writer):
            end.setblocking(False)
        return cls(reader.detach(), writer.detach())

    @property
    def fds(self) -> set[int]:
        return {self.read_fd, self.write_fd}

    def ring(self) -> None:
        try:
            os.write(self.write_fd, b"\1\0\0\0\0\0\0\0")
        except BlockingIOError:  # already full of rings, so the sleeper will wake anyway
            pass

    def wait(self, seconds: float) -> bool:
        """Sleep until the bell rings; return False if it did not ring within `seconds`."""
        if not self._poll.poll(max(0, int(seconds * 1000 + 0.999))):
            return False
        self.quieten()
        return True

    def quieten(self) -> None:
        """Consume all rings so far."""
        try:
            while len(os.read(self.read_fd, 4096)) == 4096:
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)


def wait_ready(fd: int, seconds: float | None, *, writing: bool = False) -> bool:
    """Whether `fd` becomes readable (or hangs up), or writable if `writing`, within `seconds` (None: no limit)."""
    poll = select.poll()
    poll.register(fd, select.POLLIN | (select.POLLOUT if writing else 0))
    return bool(poll.poll(None if seconds is None else max(0, int(seconds * 1000 + 0.999))))


def nameless_file(label: str) -> int:
    """Descriptor of a file in no directory, so that nothing stays behind when processes die."""
    if uses_linux():
        return os.memfd_create(label, os.MFD_CLOEXEC)
    with tempfile.TemporaryFile(prefix=label) as file:  # unlinked by the standard library right away
        return os.dup(file.fileno())


def open_pidfd(pid: int) -> int | None:
    """Descriptor that becomes readable when process `pid` ends; None if the system does not support it."""
    if not uses_linux():
        return None
    return os.pidfd_open(pid)


def voluntary_switches() -> int | None:
    """Number of times this thread gave up its core to wait for something; None if the system does not count."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    whose = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)  # the thread's own: Linux
    return resource.getrusage(whose).ru_nvcsw


def queued_seconds() -> float:
    """Seconds that this thread was ready to run while others had its core; 0 if the system does not count them."""
    try:
        with open("/proc/thread-self/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):  # not Linux, or built without it
        return 0.0


def name_process(name: str) -> None:
    """Show `name` (15 characters) in htop and ps for the calling process."""
    if uses_linux():
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def die_with_parent(parent_pid: int) -> None:
    """Make the calling process end when its parent dies, even inside a hung C call."""
    if uses_linux():
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent_pid:  # the parent died before the signal was set
            os._exit(1)
        return

    def watch() -> None:
        while os.getppid() == parent_pid:
            time.sleep(0.25)
        os._exit(1)

    threading.Thread(target=watch, name="envfleet-parent-watch", daemon=True).start()
