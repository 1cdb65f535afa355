"""The control words of a fleet: integers in the shared memory block, used by the caller and workers to synchronise.

Every word has one writer, so no lock is needed. A worker has three cache lines (of 8 words each): words that the
caller writes, words that the caller waits for, and words that the worker updates with every environment. So reading
one does not slow down the writer of another. The words of groups are stored row by row, one row per kind of word, so
that the caller can access a row at once. The names are plain integers: they are used in millions of additions, and
Enum members would cost more than the step.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, final

from envfleet.fleet.memory import Layout

__all__ = ["GROUP_WORDS", "Command", "Control", "GroupWord", "Outcome", "Phase", "Progress", "WorkerWord"]

LINE = 8
WORKER_LINES = 3
GROUP_WORDS = 8


@final
class Command:
    """A command to a group."""

    STEP: Final = 1  # step with the actions in the block
    REQUEST: Final = 2  # carry out a request from the channel
    ROUTINE: Final = 3  # as REQUEST; the request is to run the routine


@final
class Outcome:
    """A group's answer beyond its arrays: bits of one word."""

    MESSAGE: Final = 1  # there is a message in the channel: a reply, infos or an error
    ENDED: Final = 2  # some episode ended


@final
class Phase:
    """What a worker is doing; each phase has its own time limit."""

    STEP: Final = 0
    START: Final = 1  # building, resetting, saving or restoring environments


@final
class WorkerWord:
    """Words of a worker: three lines."""

    POSTED: Final = 0  # written by the caller: commands given
    STOP: Final = 1  # written by the caller
    LOCKSTEP: Final = 2  # written by the caller: 1 + slot if all groups step, 0 if each group has its own command
    FINISHED: Final = 8  # written by the worker: commands done
    SLEEPING: Final = 9  # written by the worker: ring to wake it
    CURRENT: Final = 16  # written by the worker: the environment it is running, for fault reports
    BUSY_NS: Final = 17  # written by the worker: time spent on commands
    TICK: Final = 18  # written by the worker: steps of its groups so far, a sign of life within one long command
    PHASE: Final = 19  # written by the worker: its `Phase`, which decides the time limit


@final
class GroupWord:
    """Words of the groups: rows, with one entry per group."""

    POSTED: Final = 0  # written by the caller: number of the last command
    FINISHED: Final = 1  # written by the worker: number of the last command done
    COMMAND: Final = 2  # written by the caller
    SLOT: Final = 3  # written by the caller: which observation array to fill
    OUTCOME: Final = 4  # written by the worker
    COLUMNS: Final = 5  # written by the worker: a bit per info column it filled
    BUFFER: Final = 6  # written by the caller: which buffer of its arrays a routine fills
    WEIGHT_SET: Final = 7  # written by the caller: which set of weights a routine reads


class Control:
    """The positions of the words, and the words themselves once mapped."""

    def __init__(self, workers: int, groups: int) -> None:
        self.workers, self.groups = workers, groups
        self._row = -(-groups // LINE) * LINE
        self.words: memoryview[int] = memoryview(b"").cast("q")

    def add_to(self, layout: Layout) -> None:
        layout.add("control", (self.count,), "int64")

    @property
    def count(self) -> int:
        return (1 + WORKER_LINES * self.workers) * LINE + GROUP_WORDS * self._row

    def map(self, layout: Layout, buffer: mmap.mmap) -> None:
        start = layout.places["control"].offset
        self.words = memoryview(buffer)[start : start + self.count * 8].cast("q")

    @property
    def caller_waits(self) -> int:
        """Index of the caller's word: 0 if awake, else the total number of finished commands that it waits for."""
        return 0

    def worker(self, index: int, word: int) -> int:
        return (1 + WORKER_LINES * index) * LINE + word

    def clear(self, worker: int, groups: Iterable[int]) -> None:
        """Set the words of a worker and its groups to their values before the first command."""
        for word in (
            WorkerWord.POSTED,
            WorkerWord.FINISHED,
            WorkerWord.SLEEPING,
            WorkerWord.LOCKSTEP,
            WorkerWord.PHASE,
        ):
            self.words[self.worker(worker, word)] = 0
        for group in groups:
            for word in (GroupWord.POSTED, GroupWord.FINISHED):
                self.words[self.row(word) + group] = 0

    def row(self, word: int) -> int:
        """Index of the first entry of a row; the word of group g is g places further."""
        return (1 + WORKER_LINES * self.workers) * LINE + word * self._row


class Progress:
    """The words in which a group shows the caller what its worker is doing."""

    def __init__(self, control: Control, worker: int) -> None:
        self.words = control.words
        self.current = control.worker(worker, WorkerWord.CURRENT)
        self._tick, self._phase = control.worker(worker, WorkerWord.TICK), control.worker(worker, WorkerWord.PHASE)

    def at(self, env: int) -> None:
        """Show that this environment is running."""
        self.words[self.current] = env

    def tick(self) -> None:
        """Show a sign of life."""
        self.words[self._tick] += 1

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Show that an environment is being reset or rebuilt, which may take longer than a step."""
        words, word = self.words, self._phase
        before, words[word] = words[word], Phase.START
        try:
            yield
        finally:
            words[word] = before
