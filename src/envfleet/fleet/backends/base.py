"""The protocol of a backend, which runs workers. It knows nothing about environments or policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import gymnasium

from envfleet.fleet.arrays import FleetArrays
from envfleet.fleet.channel import Channel
from envfleet.fleet.cluster import HostFacts
from envfleet.fleet.memory import Block
from envfleet.fleet.spec import Timeouts, WorkerSpec
from envfleet.fleet.worker import Answers, Hello

__all__ = ["Backend", "Relocator"]


class Relocator(Protocol):
    """Moves idle workers to other hosts on purpose, as opposed to workers that died."""

    @property
    def moves(self) -> Sequence[int]:
        """Workers that can move now: their environments are built on another host."""

    def move(self, index: int) -> None:
        """Let the process on the other host be this worker from now on; it must be attached.

        Raise ChannelClosed if that host is lost.
        """

    def stay(self, index: int, reason: str) -> None:
        """Give up moving a worker, because its environments cannot be moved."""


class Backend(Protocol):
    """Starts workers, wakes them, waits for them, notices their death and ends them."""

    name: str
    killable: bool  # a hung worker can be killed and restarted
    inline: bool  # some worker runs in the caller's own thread, where Ctrl-C interrupts its environments
    spins: bool  # the caller may spin on the control words for a moment before it sleeps
    sign_seconds: float  # how long the caller may see no progress of a worker that makes some; added to time limits

    @property
    def hosts(self) -> Sequence[tuple[str, HostFacts]]:
        """Name and facts of each other machine that hosts workers."""

    @property
    def relocator(self) -> Relocator | None:
        """Moves workers to other hosts; None if there are none."""

    @property
    def block(self) -> Block:
        """The memory block for the fleet's arrays."""

    def start(self, spec: WorkerSpec) -> None:
        """Start or restart a worker; do not wait for its environments."""

    def hello(self, index: int, seconds: float | None) -> Hello:
        """Wait for the worker's first message, sent when its environments are built.

        Raise TimeoutError after `seconds`, ChannelClosed if the worker died.
        """

    def attach(self, index: int, arrays: FleetArrays) -> None:
        """Let the worker map the block and start serving commands."""

    def channel(self, index: int) -> Channel: ...

    def wake(self, index: int) -> None:
        """Wake a sleeping worker."""

    @property
    def flush(self) -> Callable[[], None] | None:
        """Sends all posted commands; None if the workers read them from the block by themselves."""

    def run_inline(self, timeouts: Timeouts) -> None:
        """Let workers in the caller's own thread carry out their posted commands."""

    def inline_step(self, timeouts: Timeouts) -> Callable[[int], Answers] | None:
        """A function that steps all groups into a slot, if all workers run in the caller's own thread; else None."""

    def local_envs(self) -> list[gymnasium.Env[Any, Any]] | None:
        """The environment objects, if they are in the caller's own thread; else None."""

    def wait(self, seconds: float) -> bool:
        """Sleep until a worker rings or dies, at most `seconds`; False if the caller should now check for deaths."""

    def interrupt(self) -> None:
        """Let a `wait` in another thread return at once."""

    def death(self, index: int) -> str | None:
        """How the worker ended, or None while it is alive."""

    def stack(self, index: int) -> str:
        """Python stack of the worker now, or when it crashed; empty if unknown."""

    def kill(self, index: int) -> None:
        """Kill a worker and wait until it is gone, so that its memory can be reused."""

    def pid(self, index: int) -> int: ...

    def memory(self, index: int) -> int:
        """Private memory of the worker's process, in bytes."""

    def close(self, seconds: float) -> None:
        """Wait for all workers, which have been asked to stop; kill those still alive after `seconds`."""
