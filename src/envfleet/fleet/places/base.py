"""What a place is: somewhere workers live. It knows nothing of environments or policies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from envfleet.fleet.arrays import FleetArrays
from envfleet.fleet.channel import Channel
from envfleet.fleet.memory import Block
from envfleet.fleet.plan import Timeouts, WorkerPlan
from envfleet.fleet.worker import Answers, Hello, Worker

__all__ = ["Place"]


class Place(Protocol):
    """Starts workers, wakes them, waits for them, notices their death and ends them."""

    name: str
    killable: bool  # a hung worker can be ended and started again
    spins: bool  # the caller may watch the control words for a moment before it sleeps

    @property
    def block(self) -> Block:
        """Where the fleet's arrays will lie."""

    def start(self, plan: WorkerPlan) -> None:
        """Starts a worker, or starts it again; does not wait for its environments."""

    def hello(self, index: int, seconds: float | None) -> Hello:
        """What the worker says when it is built; TimeoutError, or ChannelClosed where it died."""

    def attach(self, index: int, arrays: FleetArrays) -> None:
        """Lets the worker map the block and serve."""

    def channel(self, index: int) -> Channel: ...

    def wake(self, index: int) -> None:
        """Wakes a worker that sleeps."""

    def run_inline(self, timeouts: Timeouts) -> None:
        """Lets workers that live in the caller's own thread do what was posted to them."""

    def inline_step(self, timeouts: Timeouts) -> Callable[[int], Answers] | None:
        """A step of all groups (into a slot) within the call, where all workers live in the caller's own thread."""

    def local_workers(self) -> list[Worker] | None:
        """All workers, where all of them live in the caller's own thread; None elsewhere."""

    def wait(self, seconds: float) -> bool:
        """Sleeps until a worker rings or dies, at most `seconds`; False where it is time to look for deaths."""

    def death(self, index: int) -> str | None:
        """How the worker ended, or None while it lives."""

    def stack(self, index: int) -> str:
        """The Python stack the worker is in, or was in when it crashed; empty if nobody knows."""

    def kill(self, index: int) -> None:
        """Ends a worker and waits until it is gone, so that its memory can be used again."""

    def pid(self, index: int) -> int: ...

    def close(self, seconds: float) -> None:
        """Ends all workers that were told to stop; kills those that are not gone after `seconds`."""
