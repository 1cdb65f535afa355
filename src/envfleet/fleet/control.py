"""The control words of a fleet: small integers in the block through which caller and workers agree.

Every word has one writer, so no lock is needed. A worker and a group have a cache line (8 words) each.
"""

from __future__ import annotations

import mmap
from enum import IntEnum, IntFlag

from envfleet.fleet.memory import Layout

__all__ = ["Command", "Control", "GroupWord", "Outcome", "WorkerWord"]

LINE = 8


class Command(IntEnum):
    """What a group is asked to do."""

    STEP = 1  # with the actions in the block
    REQUEST = 2  # with a request that waits in the channel


class Outcome(IntFlag):
    """What a group has to say beyond its arrays."""

    NOTHING = 0
    MESSAGE = 1  # objects wait in the channel: a reply, infos or an error
    ENDED = 2  # some episode ended


class WorkerWord(IntEnum):
    POSTED = 0  # written by the caller: commands given
    FINISHED = 1  # written by the worker: commands done
    SLEEPING = 2  # written by the worker: ring to wake it
    CURRENT = 3  # written by the worker: the environment it is in, for faults
    BUSY_NS = 4  # written by the worker: time spent on commands
    STOP = 5  # written by the caller


class GroupWord(IntEnum):
    POSTED = 0  # written by the caller: number of the last command
    FINISHED = 1  # written by the worker: number of the last command done
    COMMAND = 2  # written by the caller
    SLOT = 3  # written by the caller: which observation array to fill
    OUTCOME = 4  # written by the worker
    COLUMNS = 5  # written by the worker: a bit per info column it filled


class Control:
    """Offsets of the words, and the words themselves once mapped."""

    def __init__(self, workers: int, groups: int) -> None:
        self.workers, self.groups = workers, groups
        self.words: memoryview[int] = memoryview(b"").cast("q")

    def add_to(self, layout: Layout) -> None:
        layout.add("control", (self.count,), "int64")

    @property
    def count(self) -> int:
        return (1 + self.workers + self.groups) * LINE

    def map(self, layout: Layout, buffer: mmap.mmap) -> None:
        start = layout.places["control"].offset
        self.words = memoryview(buffer)[start : start + self.count * 8].cast("q")

    @property
    def caller_waits(self) -> int:
        """Index of the caller's word: 0 awake, 1 sleeping until any group, 2 until all are finished."""
        return 0

    def worker(self, index: int, word: WorkerWord) -> int:
        return (1 + index) * LINE + word

    def group(self, index: int, word: GroupWord) -> int:
        return (1 + self.workers + index) * LINE + word
