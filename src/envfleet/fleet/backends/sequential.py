"""The `sequential` backend: workers run in the caller's own thread, without processes or messages."""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import gymnasium

from envfleet.errors import EnvContext, EnvHungError
from envfleet.fleet.arrays import FleetArrays
from envfleet.fleet.channel import Channel, LocalChannel
from envfleet.fleet.control import Phase, WorkerWord
from envfleet.fleet.memory import Block
from envfleet.fleet.spec import Timeouts, WorkerSpec
from envfleet.fleet.watch import WatchClock, limit_of
from envfleet.fleet.worker import Answers, Hello, Worker
from envfleet.machine import private_memory

T = TypeVar("T")

__all__ = ["SequentialBackend", "interrupts_a_hang", "stack_of_thread"]


class SequentialBackend:
    """Runs its workers inside the call that waits for them."""

    name = "sequential"
    killable = False
    inline = True
    sign_seconds = 0.0
    spins = False
    flush = None
    hosts = ()
    relocator = None

    def __init__(self, block: Block | None = None) -> None:
        self.block = block or Block.create(shared=False)
        self._workers: dict[int, Worker] = {}
        self._channels: dict[int, LocalChannel] = {}
        self._watched_words: tuple[memoryview[int], int] | None = None  # control words, offset of the worker's
        self._only_watchdog: _Watchdog | None = None  # made when it is first needed

    def start(self, spec: WorkerSpec) -> None:
        ours, theirs = LocalChannel.pair()
        self._channels[spec.index] = ours
        self._workers[spec.index] = Worker(spec, theirs, None)

    def hello(self, index: int, seconds: float | None) -> Hello:
        return self._watched(self._workers[index].build, Timeouts(seconds, seconds))

    def attach(self, index: int, arrays: FleetArrays) -> None:
        self._workers[index].attach(arrays)
        self._watched_words = arrays.control.words, arrays.control.worker(index, 0)

    def _progress(self) -> _WorkerProgress:
        if self._watched_words is None:
            return _WorkerProgress(0, 0, Phase.START)
        words, line = self._watched_words
        return _WorkerProgress(
            *(words[line + word] for word in (WorkerWord.CURRENT, WorkerWord.TICK, WorkerWord.PHASE))
        )

    def _context(self, env: int, operation: str) -> EnvContext:
        (worker,) = self._workers.values()
        return worker.spec.context(env, operation)

    def channel(self, index: int) -> Channel:
        return self._channels[index]

    def wake(self, index: int) -> None:
        """Do nothing: no worker sleeps here."""

    def run_inline(self, timeouts: Timeouts) -> None:
        for worker in self._workers.values():
            self._watched(worker.serve_posted, timeouts)

    def inline_step(self, timeouts: Timeouts) -> Callable[[int], Answers]:
        (worker,) = self._workers.values()
        if timeouts.step is None and timeouts.start is None:
            return worker.step_groups
        return functools.partial(self._watchdog().run, worker.step_groups, timeouts)

    def local_envs(self) -> list[gymnasium.Env[Any, Any]]:
        return [env for worker in self._workers.values() for group in worker.groups for env in group.envs()]

    def _watched(self, work: Callable[[], T], timeouts: Timeouts) -> T:
        """Do the work under a watchdog, if there is a time limit."""
        if timeouts.step is None and timeouts.start is None:
            return work()
        return self._watchdog().run(work, timeouts)

    def _watchdog(self) -> _Watchdog:
        if self._only_watchdog is None:
            self._only_watchdog = _Watchdog(self._progress, self._context)
        return self._only_watchdog

    def wait(self, seconds: float) -> bool:
        """Return at once: the work was done inline."""
        return True

    def interrupt(self) -> None:
        """Do nothing: `wait` returns at once."""

    def death(self, index: int) -> str | None:
        return None

    def stack(self, index: int) -> str:
        return stack_of_thread(threading.get_ident())

    def kill(self, index: int) -> None:
        raise AssertionError("the caller's own thread cannot be killed")

    def pid(self, index: int) -> int:
        return os.getpid()

    def memory(self, index: int) -> int:
        return private_memory(self.pid(index))

    def close(self, seconds: float) -> None:
        if self._only_watchdog is not None:
            self._only_watchdog.stop()
        for worker in self._workers.values():
            worker.close()
        self._workers.clear()
        self._watched_words = None


_hung: set[int] = set()  # threads that a watchdog is interrupting right now


def interrupts_a_hang() -> bool:
    """Whether a SIGINT that arrives now comes from a watchdog, not from the user; signal handlers must let it pass."""
    return threading.main_thread().ident in _hung


class _WorkerProgress(NamedTuple):
    """The progress of a worker."""

    env: int
    tick: int
    phase: int


class _Hang(NamedTuple):
    """A hang that a watchdog found."""

    operation: str
    limit: float
    stack: str


class _Watchdog:
    """Interrupts the thread it watches if an environment takes too long to return.

    A thread cannot be killed. The watchdog can only record its stack and raise KeyboardInterrupt in it: in the main
    thread with a real SIGINT (which also ends a blocking system call), in another thread with the interpreter's
    asynchronous exception. Code that never returns to Python stays hung.
    """

    def __init__(self, progress: Callable[[], _WorkerProgress], context: Callable[[int, str], EnvContext]) -> None:
        self._hang: _Hang | None = None
        self._progress, self._context = progress, context
        self._timeouts: Timeouts | None = None
        self._round = 0
        self._thread_id = 0
        self._signal = _signal_that_interrupts()
        self._stopped = False
        self._changed = threading.Condition()
        threading.Thread(target=self._watch, name="envfleet-watchdog", daemon=True).start()

    def run(self, work: Callable[..., T], timeouts: Timeouts, *args: Any) -> T:
        """Do the work; raise EnvHungError if it had to be interrupted."""
        self._hang, self._thread_id = None, threading.get_ident()
        self._round += 1
        if self._timeouts is not timeouts:
            with self._changed:
                self._timeouts = timeouts
                self._changed.notify()
        try:
            return work(*args)
        except KeyboardInterrupt:
            hang = self._hang
            if hang is None:
                raise
            context = self._context(self._progress().env, hang.operation)
            message = f"an environment did not return within {hang.limit:g} s"
            raise EnvHungError(message, context, original=hang.stack) from None
        finally:
            self._round += 1
            if _hung:
                _hung.discard(threading.get_ident())

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def _watch(self) -> None:
        clock, seen, since = WatchClock(), (0, _WorkerProgress(0, 0, 0)), 0.0
        while True:
            with self._changed:
                self._changed.wait(self._look_every())
                if self._stopped:
                    return
                timeouts = self._timeouts
            watched = clock.look()
            busy = self._round % 2 == 1
            now = (self._round, self._progress())
            operation, limit = ("step", None) if timeouts is None else limit_of(now[1].phase, timeouts)
            if now != seen or not busy or limit is None:
                seen, since = now, watched
            elif watched - since > limit:
                self._hang = _Hang(operation, limit, stack_of_thread(self._thread_id))
                _hung.add(self._thread_id)
                _interrupt(self._thread_id, self._signal)
                since = watched

    def _look_every(self) -> float | None:
        if self._timeouts is None:
            return None
        limits = [limit / 4 for limit in (self._timeouts.step, self._timeouts.start) if limit is not None]
        return min([1.0, *limits])


def _signal_that_interrupts() -> int:
    """SIGINT, or SIGUSR2 if the program ignores SIGINT, as a shell's background jobs do."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        return signal.SIGINT
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL:
        signal.signal(signal.SIGUSR2, signal.default_int_handler)
    return signal.SIGUSR2


def _interrupt(thread_id: int, number: int) -> None:
    if thread_id == threading.main_thread().ident:
        signal.pthread_kill(thread_id, number)
    else:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), ctypes.py_object(KeyboardInterrupt))


def stack_of_thread(thread_id: int) -> str:
    """The Python stack of a thread of this process, innermost call last."""
    frame = sys._current_frames().get(thread_id)
    return "" if frame is None else "".join(traceback.format_stack(frame))
