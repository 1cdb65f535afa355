"""Ctrl-C, SIGTERM and SIGHUP: the caller takes them, workers leave them to it, other processes keep the defaults.

A terminal, `timeout`, systemd and batch schedulers send a signal to all processes of a group at once. Only the caller
can save the run, so a worker must not end by such a signal. It cannot ignore it either: an ignored signal stays
ignored in every process that an environment starts, and `process.terminate()` would do nothing. So a worker has
handlers that do nothing. A new program starts without them (`exec` resets handlers); a forked process is a copy, so
its handlers are set back right after the fork, in workers and in a caller that trains.

Between `fork` and its own handlers a process has those of its parent. The signals are blocked during that time: they
are delivered when the right handlers are set.
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
    """A signal ended what was under way; `code` is the conventional exit code."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.code = 128 + number


def terminate(number: int, _frame: FrameType | None) -> None:
    """A handler: ends what is under way as Ctrl-C does, so that everything is closed."""
    raise Terminated(number)


@contextmanager
def blocked() -> Iterator[None]:
    """Keeps the signals pending for this thread and for the processes that it starts meanwhile."""
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
    """Sets handlers for a while; processes that are forked meanwhile have those from before.

    Only the main thread can: in another one nothing is set. SIGHUP stays ignored if it is (`nohup`).
    """
    before: dict[int, Any] = {}
    first: set[int] = set()  # those that nobody around this has set
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
    """Makes a worker deaf to the signals; what was blocked while it started is unblocked."""
    _watch_forks()
    signal.set_wakeup_fd(-1)  # a forked worker shares it with an event loop of the caller
    for number in ENDING:
        if signal.getsignal(number) is signal.SIG_IGN:  # nohup, or a shell's background job: so are its children
            continue
        signal.signal(number, _do_nothing)
        signal.siginterrupt(number, False)  # a system call in a simulator's own code is not cut short
        _in_forks[number] = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    """Unlike SIG_IGN this is not inherited by a new program."""


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
    """Python cannot set a handler again that a C library had set; it is None here."""
    return signal.SIG_DFL if handler is None else handler
