"""The `threads` backend: for environments that release the GIL while they compute."""

from __future__ import annotations

import os
import threading

from envfleet.errors import EnvfleetError
from envfleet.fleet.arrays import FleetArrays
from envfleet.fleet.backends.sequential import stack_of_thread
from envfleet.fleet.channel import Channel, LocalChannel
from envfleet.fleet.memory import Block
from envfleet.fleet.os_compat import Doorbell
from envfleet.fleet.spec import Timeouts, WorkerSpec
from envfleet.fleet.worker import Bells, Hello, Worker, unexpected
from envfleet.machine import private_memory

__all__ = ["ThreadsBackend"]


class ThreadsBackend:
    """One thread per worker. An idle thread sleeps at once instead of spinning, which would hold the GIL."""

    name = "threads"
    killable = False
    inline = False
    sign_seconds = 0.0
    spins = False
    flush = None
    hosts = ()
    relocator = None

    def __init__(self) -> None:
        self.block = Block.create(shared=False)
        self._caller_bell = Doorbell.create()
        self._bells: dict[int, Bells] = {}
        self._channels: dict[int, LocalChannel] = {}
        self._threads: dict[int, threading.Thread] = {}
        self._attached: set[int] = set()

    def start(self, spec: WorkerSpec) -> None:
        ours, theirs = LocalChannel.pair()
        bells = Bells(Doorbell.create(), self._caller_bell, spin=False)
        self._channels[spec.index], self._bells[spec.index] = ours, bells
        thread = threading.Thread(target=_live, args=(spec, theirs, bells), name=spec.name, daemon=True)
        self._threads[spec.index] = thread
        thread.start()

    def hello(self, index: int, seconds: float | None) -> Hello:
        answer = self._channels[index].receive(seconds)
        if isinstance(answer, EnvfleetError):
            raise answer
        assert isinstance(answer, Hello)
        return answer

    def attach(self, index: int, arrays: FleetArrays) -> None:
        self._attached.add(index)
        self._channels[index].send(arrays)
        failure = self._channels[index].receive()
        if failure is not None:
            raise failure

    def channel(self, index: int) -> Channel:
        return self._channels[index]

    def wake(self, index: int) -> None:
        self._bells[index].worker.ring()

    def run_inline(self, timeouts: Timeouts) -> None:
        """Do nothing: no worker runs in the caller's thread."""

    def inline_step(self, timeouts: Timeouts) -> None:
        """Return None: no worker runs in the caller's thread."""

    def local_envs(self) -> None:
        """Return None: no worker runs in the caller's thread."""

    def wait(self, seconds: float) -> bool:
        return self._caller_bell.wait(seconds)

    def interrupt(self) -> None:
        self._caller_bell.ring()

    def death(self, index: int) -> str | None:
        return None if self._threads[index].is_alive() else "its thread ended"

    def stack(self, index: int) -> str:
        return stack_of_thread(self._threads[index].ident or 0)

    def kill(self, index: int) -> None:
        raise AssertionError("a thread cannot be killed")

    def pid(self, index: int) -> int:
        return os.getpid()

    def memory(self, index: int) -> int:
        return private_memory(self.pid(index))

    def close(self, seconds: float) -> None:
        for index, thread in self._threads.items():
            if index not in self._attached:
                self._channels[index].send(None)
            self.wake(index)
            thread.join(seconds)
        if not any(thread.is_alive() for thread in self._threads.values()):  # a hung thread still uses the bells
            for bell in (self._caller_bell, *(bells.worker for bells in self._bells.values())):
                bell.close()
        self._threads.clear()


def _live(spec: WorkerSpec, channel: LocalChannel, bells: Bells) -> None:
    """Main function of a worker thread."""
    worker: Worker | None = None
    try:
        worker = Worker(spec, channel, bells)
        channel.send(worker.build())
        arrays = channel.receive()
        if arrays is None:  # closed before it was attached
            worker.close()
            return
        worker.attach(arrays)
    except Exception as error:
        channel.send(unexpected(error))
        if worker is not None:
            worker.close()
        return
    channel.send(None)
    worker.serve()
