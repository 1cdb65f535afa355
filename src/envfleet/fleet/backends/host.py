"""A host: workers on some machine, with a block of their own, that serve a caller elsewhere.

The caller keeps its own block and its supervisor, which knows every worker by number. It sends a `Commands` message to
each host: the control words, the packed requests and the rows that its commands need. The host writes them into its own
block, which has the same layout, so its workers see the same data as in the caller's block. When the groups of a
message are done, the host answers with a `Report`: the words, the packed replies and the rows that were written. The
caller pastes them into its block and continues as if it had shared the memory all along.

If a worker dies, its part of a message is reported at once, together with the rows that it had written. The
supervisor then restarts the worker, as on one machine. The host decides nothing by itself, and knows nothing of
environments.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from envfleet.fleet.arrays import FleetArrays, FleetShape
from envfleet.fleet.backends.base import Backend
from envfleet.fleet.channel import ChannelClosed
from envfleet.fleet.control import GroupWord, Outcome, WorkerWord
from envfleet.fleet.infos import ColumnDefinition
from envfleet.fleet.spec import Timeouts
from envfleet.fleet.transfer import Array, Parcel, RowTransfer, Task
from envfleet.fleet.waiting import Waiter
from envfleet.fleet.watch import ProgressWatch
from envfleet.fleet.worker import Hello

__all__ = ["STARTED_AGAIN", "Commands", "Host", "LocalBackend", "PackedSpec", "Posted", "Report", "Sign"]


MEMORY_SECONDS = 10.0  # how often the memory of workers is measured, which takes milliseconds
STARTED_AGAIN = "they were started there again"
REPLY_SECONDS = 60.0  # how long a worker may take to send a reply that it has announced


@dataclass(frozen=True)
class PackedSpec:
    """A worker's spec, still pickled, since only the worker itself can use it."""

    index: int
    name: str
    groups: tuple[int, ...]
    messages: list[list[bytes]]  # see `packed_spec`
    modules: tuple[str, ...]  # of its routine


class LocalBackend(Backend, Protocol):
    """A backend that a host can use: its workers run on this machine."""

    def start_packed(self, packed: PackedSpec) -> None:
        """Start a worker from its pickled spec; otherwise as `start`."""


class Posted(NamedTuple):
    """Words that the caller has set for a worker."""

    worker: int
    epoch: int  # how often the worker was started
    posted: int
    lockstep: int


@dataclass(frozen=True)
class Commands:
    """Commands to some workers of one host."""

    number: int  # of the message
    workers: list[Posted]
    tasks: list[Task]
    numbers: list[int]  # of the commands, one per task
    requests: list[tuple[int, bytes]]  # worker, packed request
    parcel: Parcel
    columns: list[ColumnDefinition] | None  # the info columns, if there are any
    command: int  # the highest of the commands; decides which undivided arrays are sent too
    weight_sets: tuple[int, ...]  # that routines among the commands read


class Sign(NamedTuple):
    """Words of a worker that show whether it makes progress, and its memory."""

    worker: int
    memory: int  # private memory of its process, in bytes
    current: int
    busy_ns: int
    tick: int
    phase: int


@dataclass(frozen=True)
class Report:
    """Results of the commands of one message, or of those that went to a worker which has died."""

    number: int
    epochs: dict[int, int]  # of the workers
    signs: list[Sign]
    tasks: list[Task]
    words: list[tuple[int, int, int]]  # finished, outcome and columns, one per task
    replies: list[tuple[int, bytes]]  # worker, packed reply
    parcel: Parcel | None
    died: str | None = None  # how the only worker of this report died
    last: bool = True  # no further report of this message follows

    def without(self, workers: Collection[int], groups: Collection[int], transfer: RowTransfer) -> Report:
        """This report without some workers and their groups; it must have rows."""
        assert self.parcel is not None
        kept = [(task, words) for task, words in zip(self.tasks, self.words, strict=True) if task.group not in groups]
        tasks = [task for task, _ in kept]
        return replace(
            self,
            epochs={worker: epoch for worker, epoch in self.epochs.items() if worker not in workers},
            signs=[sign for sign in self.signs if sign.worker not in workers],
            tasks=tasks,
            words=[words for _, words in kept],
            replies=[(worker, reply) for worker, reply in self.replies if worker not in workers],
            parcel=transfer.only(self.parcel, self.tasks, tasks),
        )


class _Open:
    """A message that has not been answered completely."""

    def __init__(self, commands: Commands, host: dict[int, int]) -> None:
        self.number = commands.number
        self.epochs = {posted.worker: posted.epoch for posted in commands.workers}
        self.tasks: dict[int, list[Task]] = {posted.worker: [] for posted in commands.workers}
        for task in commands.tasks:
            self.tasks[host[task.group]].append(task)
        self.replies: dict[int, list[bytes]] = {}  # of workers that are done


class Host:
    """Runs workers with a local backend, for a caller elsewhere. Its methods are called by one thread."""

    def __init__(self, backend: LocalBackend) -> None:
        self.backend = backend
        self._arrays: FleetArrays | None = None
        self._of_worker: dict[int, tuple[int, ...]] = {}  # groups of each worker
        self._worker_of: dict[int, int] = {}  # and the worker of each group
        self._starts: dict[int, int] = {}  # of each worker, so far
        self._open: list[_Open] = []
        self._closed: list[int] = []  # messages whose last worker was killed
        self._died: dict[int, str] = {}
        self._memory: dict[int, int] = {}
        self._weighed = -MEMORY_SECONDS
        self._signing = threading.Lock()  # while held, the host is not closed
        self._has_signs = False

    # --- workers

    def start(self, packed: PackedSpec) -> int:
        """Start or restart a worker; return the number of this start."""
        if self._arrays is not None:
            self._arrays.control.clear(packed.index, packed.groups)
        self._of_worker[packed.index] = packed.groups
        self._worker_of.update(dict.fromkeys(packed.groups, packed.index))
        self._died.pop(packed.index, None)
        self._starts[packed.index] = number = self._starts.get(packed.index, 0) + 1
        self.backend.start_packed(packed)
        return number

    def hello(self, worker: int, start: int, seconds: float | None) -> tuple[Hello, int]:
        """As `Backend.hello`, and the worker's process id; raise ChannelClosed if there was a newer start."""
        if self._starts.get(worker) != start:
            raise ChannelClosed(STARTED_AGAIN)
        return self.backend.hello(worker, seconds), self.backend.pid(worker)

    def attach(self, worker: int, shape: FleetShape, fleet: Sequence[range], rows: Parcel | None) -> Parcel:
        """Let the worker serve commands; `fleet` has the environments of all groups of the fleet.

        `rows` has all rows of the worker if this host has never had them. Return the rows that the worker has set.
        """
        if self._arrays is None:
            layout = shape.layout()
            self._arrays = FleetArrays(shape, layout, self.backend.block.allocate(layout.size))
            self._transfer = RowTransfer(self._arrays, fleet, to_worker=False)
            self._words = self._arrays.control.words
            no_limit = Timeouts(None, None)  # the caller's supervisor finds hung workers, by their signs of life
            self._waiter = Waiter(self.backend, self._arrays.control, no_limit, self._look_for_deaths)
            self._has_signs = True
        groups = self._of_worker[worker]
        if rows is not None:
            self._transfer.paste_everything(rows, groups)
        self._transfer.clear_columns(groups)
        self.backend.attach(worker, self._arrays)
        return self._transfer.at_start(groups)

    def kill(self, worker: int) -> tuple[str, list[Report]]:
        """Kill a worker; return how it ended, and the reports of its pending commands."""
        self._died[worker] = self._end(worker)
        reports = []
        for message in [message for message in self._open if worker in message.tasks]:
            reports.append(self._report(message, {worker: message.tasks.pop(worker)}, self._died[worker]))
            if not message.tasks:
                self._open.remove(message)
                self._closed.append(message.number)
        return self._died[worker], reports

    def _end(self, worker: int) -> str:
        self.backend.kill(worker)
        return self.backend.death(worker) or "it ended"

    # --- commands

    def post(self, commands: Commands, whole: Array) -> None:
        """Write the commands and the arrays that are not divided into the block, and wake the workers."""
        assert self._arrays is not None
        if commands.columns is not None:
            self._transfer.define_columns(commands.columns)
        self._transfer.paste_whole(whole, commands.command, commands.weight_sets)
        self._transfer.paste(commands.parcel, commands.tasks)
        words, control = self._words, self._arrays.control
        lockstep = {posted.worker for posted in commands.workers if posted.lockstep}
        for task, number in zip(commands.tasks, commands.numbers, strict=True):
            if self._worker_of[task.group] not in lockstep:
                words[control.row(GroupWord.SLOT) + task.group] = task.slot
                words[control.row(GroupWord.COMMAND) + task.group] = task.command
                words[control.row(GroupWord.POSTED) + task.group] = number
        self._open.append(_Open(commands, self._worker_of))
        for posted in commands.workers:
            line = control.worker(posted.worker, WorkerWord.POSTED)
            words[line + WorkerWord.LOCKSTEP] = posted.lockstep
            words[line] = posted.posted
            if words[line + WorkerWord.SLEEPING]:
                self.backend.wake(posted.worker)
        for worker, request in commands.requests:
            try:
                self.backend.channel(worker).send_packed(request)
            except ChannelClosed:
                pass  # `serve` will notice that the worker died

    @property
    def busy(self) -> bool:
        """Whether a message has not been answered."""
        return bool(self._open or self._closed)

    def serve(self, interrupted: Callable[[], bool]) -> list[Report]:
        """Wait until a message is done, a worker has died, or `interrupted()`; return the reports."""
        self._waiter.sleep(lambda: 0 if interrupted() else self._lacking())
        closed = [Report(number, {}, [], [], [], [], None) for number in self._closed]
        self._closed.clear()
        return closed + [report for message in list(self._open) for report in self._reports_of(message)]

    def _lacking(self) -> int:
        """Minimum number of commands that must finish before there is something to report."""
        if self._closed:
            return 0
        least = None
        for message in self._open:
            if any(worker in self._died for worker in message.tasks):
                return 0
            count = sum([self._unfinished(worker, tasks) for worker, tasks in message.tasks.items()])
            least = count if least is None else min(least, count)
        return least or 0

    def _unfinished(self, worker: int, tasks: list[Task]) -> int:
        assert self._arrays is not None
        words, control = self._words, self._arrays.control
        line = control.worker(worker, WorkerWord.POSTED)
        if words[line + WorkerWord.LOCKSTEP]:
            return words[line] - words[line + WorkerWord.FINISHED]
        posted, finished = control.row(GroupWord.POSTED), control.row(GroupWord.FINISHED)
        return sum([words[posted + task.group] != words[finished + task.group] for task in tasks])

    def _reports_of(self, message: _Open) -> list[Report]:
        """Reports of workers that died, and of all others once they are done."""
        done = not any(self._unfinished(worker, tasks) for worker, tasks in message.tasks.items())
        for worker, tasks in message.tasks.items() if done else ():
            self._receive(message, worker, tasks)
        reports = []
        for worker in [worker for worker in message.tasks if worker in self._died]:
            tasks = message.tasks.pop(worker)
            reports.append(self._report(message, {worker: tasks}, self._died[worker], last=not message.tasks))
        if message.tasks and done:
            reports.append(self._report(message, message.tasks))
            message.tasks = {}
        if not message.tasks:
            self._open.remove(message)
        return reports

    def _receive(self, message: _Open, worker: int, tasks: list[Task]) -> None:
        """Receive the replies of a worker that is done; it may still die while it sends them."""
        assert self._arrays is not None
        outcomes = self._arrays.control.row(GroupWord.OUTCOME)
        count = sum([self._words[outcomes + task.group] & Outcome.MESSAGE for task in tasks])
        replies = message.replies.setdefault(worker, [])
        try:
            while len(replies) < count and worker not in self._died:
                replies.append(self.backend.channel(worker).receive_packed(REPLY_SECONDS))
        except (ChannelClosed, TimeoutError):
            self._died[worker] = self._end(worker)

    def _report(
        self, message: _Open, parts: dict[int, list[Task]], died: str | None = None, last: bool = True
    ) -> Report:
        assert self._arrays is not None
        words, control = self._words, self._arrays.control
        tasks = [task for part in parts.values() for task in part]
        rows = [control.row(word) for word in (GroupWord.FINISHED, GroupWord.OUTCOME, GroupWord.COLUMNS)]
        listed = [(words[rows[0] + group], words[rows[1] + group], words[rows[2] + group]) for group, *_ in tasks]
        replies = [(worker, reply) for worker in parts if died is None for reply in message.replies[worker]]
        parcel = self._transfer.cut(tasks, present=[columns for _, _, columns in listed])
        signs, epochs = [self._sign(worker) for worker in parts], {worker: message.epochs[worker] for worker in parts}
        return Report(message.number, epochs, signs, tasks, listed, replies, parcel, died, last)

    # --- signs of life

    def signs(self) -> list[Sign]:
        """The progress of every worker. Any thread may call this."""
        with self._signing:
            if not self._has_signs:
                return []
            if time.monotonic() - self._weighed > MEMORY_SECONDS:
                self._weighed = time.monotonic()
                self._memory = {worker: self.backend.memory(worker) for worker in list(self._of_worker)}
            return [self._sign(worker) for worker in list(self._of_worker)]

    def _sign(self, worker: int) -> Sign:
        assert self._arrays is not None
        line = self._arrays.control.worker(worker, 0)
        return Sign(worker, self._memory.get(worker, 0), *(self._words[line + word] for word in _SIGNS))

    def _look_for_deaths(self, watch: ProgressWatch) -> None:
        for worker in self._of_worker:
            reason = self.backend.death(worker)
            if reason is not None:
                self._died[worker] = reason

    def close(self, seconds: float) -> None:
        """Tell all workers to stop and wait for them."""
        with self._signing:
            self._has_signs = False
        if self._arrays is not None:
            for worker in self._of_worker:
                self._words[self._arrays.control.worker(worker, WorkerWord.STOP)] = 1
        self.backend.close(seconds)
        self._arrays = None
        for name in ("_words", "_transfer", "_waiter"):  # frees the memory
            self.__dict__.pop(name, None)


_SIGNS = (WorkerWord.CURRENT, WorkerWord.BUSY_NS, WorkerWord.TICK, WorkerWord.PHASE)
