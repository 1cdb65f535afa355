"""The caller's own thread as a place: no other process, no other thread, no message."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import TypeVar

from envfleet.errors import EnvContext, EnvHungError
from envfleet.fleet.arrays import FleetArrays
from envfleet.fleet.channel import Channel, LocalChannel
from envfleet.fleet.control import WorkerWord
from envfleet.fleet.memory import Block
from envfleet.fleet.plan import WorkerPlan
from envfleet.fleet.worker import Hello, Worker

T = TypeVar("T")

__all__ = ["SequentialPlace", "interrupts_a_hang", "stack_of_thread"]


class SequentialPlace:
    """Runs its workers inside the call that waits for them."""

    name = "sequential"
    killable = False
    spins = False

    def __init__(self, block: Block | None = None) -> None:
        self.block = block or Block.create(shared=False)
        self._workers: dict[int, Worker] = {}
        self._channels: dict[int, LocalChannel] = {}
        self._current: Callable[[], int] = lambda: 0
        self._tick: Callable[[], int] = lambda: 0
        self._watchdog: _Watchdog | None = None

    def start(self, plan: WorkerPlan) -> None:
        ours, theirs = LocalChannel.pair()
        self._channels[plan.index] = ours
        self._workers[plan.index] = Worker(plan, theirs, None)

    def hello(self, index: int, seconds: float | None) -> Hello:
        return self._watched(self._workers[index].build, seconds, "make")

    def attach(self, index: int, arrays: FleetArrays) -> None:
        self._workers[index].attach(arrays)
        words, line = arrays.control.words, arrays.control.worker(index, 0)
        self._current = lambda: words[line + WorkerWord.CURRENT]
        self._tick = lambda: words[line + WorkerWord.TICK]

    def channel(self, index: int) -> Channel:
        return self._channels[index]

    def wake(self, index: int) -> None:
        """Nothing sleeps here."""

    def run_inline(self, seconds: float | None) -> None:
        for worker in self._workers.values():
            self._watched(worker.serve_posted, seconds, "step")

    def _watched(self, work: Callable[[], T], seconds: float | None, operation: str) -> T:
        """Does the work under a watchdog: an environment that hangs is interrupted where Python can."""
        if seconds is None:
            return work()
        if self._watchdog is None:
            self._watchdog = _Watchdog(lambda: (self._current(), self._tick()))
        watchdog = self._watchdog
        watchdog.begin(seconds)
        try:
            return work()
        except KeyboardInterrupt:
            if watchdog.stack is None:
                raise
            context = EnvContext(self._current(), operation)
            raise EnvHungError(
                f"an environment did not return within {seconds:g} s", context, original=watchdog.stack
            ) from None
        finally:
            watchdog.end()
            _hung.discard(threading.get_ident())

    def wait(self, seconds: float) -> bool:
        """Nothing to wait for: the work was done inline."""
        return True

    def death(self, index: int) -> str | None:
        return None

    def stack(self, index: int) -> str:
        return stack_of_thread(threading.get_ident())

    def kill(self, index: int) -> None:
        raise AssertionError("the caller's own thread cannot be killed")

    def pid(self, index: int) -> int:
        return os.getpid()

    def close(self, seconds: float) -> None:
        if self._watchdog is not None:
            self._watchdog.stop()
        for worker in self._workers.values():
            worker.close()
        self._workers.clear()
        self._current = self._tick = lambda: 0


_hung: set[int] = set()  # threads that a watchdog interrupts at the moment


def interrupts_a_hang() -> bool:
    """A SIGINT that comes now comes from a watchdog, not from the user: whoever takes signals must let it through."""
    return threading.main_thread().ident in _hung


class _Watchdog:
    """Interrupts the thread it watches when an environment has not returned for too long.

    A thread cannot be killed. What can be done is to print where it is and to raise KeyboardInterrupt in
    it: by a real SIGINT in the main thread (which also ends a blocking system call), by the interpreter's
    asynchronous exception in another. Code that never comes back to Python stays hung.
    """

    def __init__(self, progress: Callable[[], tuple[int, int]]) -> None:
        self.stack: str | None = None
        self._progress = progress
        self._limit: float | None = None
        self._round = 0
        self._thread_id = 0
        self._signal = _signal_that_interrupts()
        self._stopped = False
        self._changed = threading.Condition()
        threading.Thread(target=self._watch, name="envfleet-watchdog", daemon=True).start()

    def begin(self, seconds: float) -> None:
        self.stack, self._thread_id = None, threading.get_ident()
        self._round += 1
        if self._limit != seconds:
            with self._changed:
                self._limit = seconds
                self._changed.notify()

    def end(self) -> None:
        self._round += 1

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def _watch(self) -> None:
        seen, since = (0, (0, 0)), time.monotonic()
        while True:
            with self._changed:
                self._changed.wait(None if self._limit is None else min(1.0, self._limit / 4))
                if self._stopped:
                    return
                limit = self._limit
            busy = self._round % 2 == 1
            now = (self._round, self._progress())
            if now != seen or not busy or limit is None:
                seen, since = now, time.monotonic()
            elif time.monotonic() - since > limit:
                self.stack = stack_of_thread(self._thread_id)
                _hung.add(self._thread_id)
                _interrupt(self._thread_id, self._signal)
                since = time.monotonic()


def _signal_that_interrupts() -> int:
    """SIGINT; in a program that ignores it, as one started in the background by a shell does, a signal of our own."""
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
