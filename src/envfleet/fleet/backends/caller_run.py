"""Worker processes plus the caller as the last worker (`trusted=True`): the caller works instead of waiting.

The caller gives up isolation: an environment that it hosts can crash or hang it. Opt-in only.
"""

from __future__ import annotations

from envfleet.fleet.arrays import FleetArrays
from envfleet.fleet.backends.processes import ProcessesBackend
from envfleet.fleet.backends.sequential import SequentialBackend
from envfleet.fleet.channel import Channel
from envfleet.fleet.memory import Block
from envfleet.fleet.spec import Timeouts, WorkerSpec
from envfleet.fleet.worker import Hello

__all__ = ["CallerRunBackend"]


class CallerRunBackend:
    """All workers are processes except the last, which runs in the caller's own thread."""

    name = "processes"
    killable = True
    inline = True
    sign_seconds = 0.0
    flush = None
    hosts = ()
    relocator = None

    def __init__(self, start_method: str, workers: int) -> None:
        self._caller_run = workers - 1
        self._processes = ProcessesBackend(start_method)
        self._caller = SequentialBackend(self._processes.block)
        self.spins = self._processes.spins

    @property
    def block(self) -> Block:
        return self._processes.block

    def _of(self, index: int) -> ProcessesBackend | SequentialBackend:
        return self._caller if index == self._caller_run else self._processes

    def start(self, spec: WorkerSpec) -> None:
        self._of(spec.index).start(spec)

    def hello(self, index: int, seconds: float | None) -> Hello:
        return self._of(index).hello(index, seconds)

    def attach(self, index: int, arrays: FleetArrays) -> None:
        self._of(index).attach(index, arrays)

    def channel(self, index: int) -> Channel:
        return self._of(index).channel(index)

    def wake(self, index: int) -> None:
        self._of(index).wake(index)

    def run_inline(self, timeouts: Timeouts) -> None:
        self._caller.run_inline(timeouts)

    def inline_step(self, timeouts: Timeouts) -> None:
        """Return None: not all workers run in the caller's thread."""

    def local_envs(self) -> None:
        """Return None: not all workers run in the caller's thread."""

    def wait(self, seconds: float) -> bool:
        return self._processes.wait(seconds)

    def interrupt(self) -> None:
        self._processes.interrupt()

    def death(self, index: int) -> str | None:
        return self._of(index).death(index)

    def stack(self, index: int) -> str:
        return self._of(index).stack(index)

    def kill(self, index: int) -> None:
        self._of(index).kill(index)

    def pid(self, index: int) -> int:
        return self._of(index).pid(index)

    def memory(self, index: int) -> int:
        return self._of(index).memory(index)

    def close(self, seconds: float) -> None:
        self._caller.close(seconds)
        self._processes.close(seconds)
