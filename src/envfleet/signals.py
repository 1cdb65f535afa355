"""Ctrl-C, SIGTERM and SIGHUP: the caller handles them, workers leave them to the caller, other processes keep defaults.

A terminal, `timeout`, systemd and batch schedulers send a signal to all processes of a group at once. Only the caller
can save the run, so such a signal must not end a worker. A worker cannot ignore it either: an ignored signal stays
ignored in every process that an environment starts, and `process.terminate()` would do nothing. So a worker has
handlers that do nothing. A new program starts without them (`exec` resets handlers); a forked process is a copy, so
its handlers are set back right after the fork, in workers and in a caller that trains.

Between `fork` and setting its own handlers, a process has its parent's. The signals are blocked during that time and
delivered once the right handlers are set.
"""

from __future__ import annotations

import functools
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["ENDING", "Terminated", "blocked", "handled", "leave_to_caller", "terminate"]

Handler = Callable[[int, FrameType | None], Any]
# The signals that ask a process to end; Windows has no SIGHUP.
ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
HANGUP = getattr(signal, "SIGHUP", None)
_in_forks: dict[int, Any] = {}  # the handlers that a forked process gets instead of ours
_fork = threading.local()


class Terminated(KeyboardInterrupt):
    """A signal interrupted the program; `code` is the conventional exit code."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.code = 128 + number


def terminate(number: int, _frame: FrameType | None) -> None:
    """Signal handler that raises like Ctrl-C, so that everything is closed."""
    raise Terminated(number)


@contextmanager
def blocked() -> Iterator[None]:
    """Keep the signals pending for this thread and for processes it starts in the meantime."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def handled(handlers: Mapping[int, Handler]) -> Iterator[None]:
    """Set handlers within a `with` block; processes forked in the meantime keep the previous ones.

    Only the main thread can set handlers: in other threads this does nothing. An ignored SIGHUP (`nohup`) stays
    ignored.
    """
    before: dict[int, Any] = {}
    first: set[int] = set()  # signals that no enclosing `handled` has set
    if threading.current_thread() is threading.main_thread():
        _watch_forks()
        with blocked():
            for number, handler in handlers.items():
                if number == HANGUP and signal.getsignal(number) is signal.SIG_IGN:
                    continue
                before[number] = signal.signal(number, handler)
                if number not in _in_forks:
                    first.add(number)
                    _in_forks[number] = before[number]
    try:
        yield
    finally:
        with blocked():
            for number, handler in before.items():
                signal.signal(number, _known(handler))
                if number in first:
                    _in_forks.pop(number, None)


def leave_to_caller() -> None:
    """Make a worker disregard the signals, and unblock those that were blocked while it started."""
    _watch_forks()
    signal.set_wakeup_fd(-1)  # a forked worker shares it with an event loop of the caller
    for number in ENDING:
        if signal.getsignal(number) is signal.SIG_IGN:  # nohup, or a shell's background job: children inherit it
            continue
        signal.signal(number, _do_nothing)
        signal.siginterrupt(number, False)  # do not interrupt system calls in a simulator's code
        _in_forks[number] = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    """Signal handler that, unlike SIG_IGN, is not inherited by a new program."""


@functools.cache
def _watch_forks() -> None:
    if not hasattr(os, "register_at_fork"):  # Windows cannot fork
        return
    os.register_at_fork(before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child)


def _before_fork() -> None:
    _fork.mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)


def _after_in_parent() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _fork.mask)


def _after_in_child() -> None:
    for number, handler in _in_forks.items():
        signal.signal(number, _known(handler))
    _in_forks.clear()
    signal.pthread_sigmask(signal.SIG_SETMASK, _fork.mask)


def _known(handler: Any) -> Any:
    """The handler, or SIG_DFL for None: Python cannot restore a handler that a C library had set."""
    return signal.SIG_DFL if handler is None else handler
