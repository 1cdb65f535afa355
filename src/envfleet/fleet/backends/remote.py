"""Workers on hosts that share no memory with the caller: the caller's side (`host.py` is the other).

The supervisor writes commands into the caller's own block as usual. `flush` collects them and sends one message to each
host. Reports may arrive in another thread. That thread pastes their rows into the block, sets the control words and
rings the caller. So everything above this backend sees the same data as with shared memory.

A host can be lost with everything on it. All of its workers then count as dead, and when the first of them is
restarted, all of them are started on another host. Later reports of the lost host or the old worker are ignored.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Sequence
from typing import Any

from envfleet.fleet.arrays import FleetArrays
from envfleet.fleet.backends.base import Relocator
from envfleet.fleet.backends.host import STARTED_AGAIN, Commands, PackedSpec, Posted, Report, Sign
from envfleet.fleet.backends.link import HostLost, HostPlacement, Link, RelayedChannel, packed_by_value
from envfleet.fleet.backends.relayed_words import posted_tasks, show_results, show_signs
from envfleet.fleet.channel import Channel, ChannelClosed
from envfleet.fleet.cluster import HostFacts
from envfleet.fleet.control import Command, WorkerWord
from envfleet.fleet.memory import Block
from envfleet.fleet.os_compat import Doorbell
from envfleet.fleet.spec import Timeouts, WorkerSpec
from envfleet.fleet.transfer import RowTransfer
from envfleet.fleet.worker import Hello

__all__ = ["RemoteBackend"]


class RemoteBackend:
    """Relays the commands of the supervisor to workers on hosts."""

    spins = inline = False

    def __init__(self, name: str, placement: HostPlacement) -> None:
        self.name, self.killable, self.sign_seconds = name, placement.killable, placement.sign_seconds
        self.block = Block.create(shared=False)
        self._placement = placement
        self._bell = Doorbell.create()
        self._lock = threading.RLock()  # between the caller and threads that deliver reports
        self._placing = threading.Lock()  # while held, no worker gets another host
        self._specs: dict[int, PackedSpec] = {}
        self._groups: dict[int, range] = {}  # environments of each group
        self._large: list[bytes] = []
        self._links: dict[int, Link] = {}
        self._starts: dict[int, int] = {}  # number of each worker's last start on its host
        self._channels: dict[int, RelayedChannel] = {}
        self._pids: dict[int, int] = {}
        self._memory: dict[int, int] = {}
        self._epochs: dict[int, int] = {}
        self._dead: dict[int, str] = {}
        self._lost: weakref.WeakSet[Link] = weakref.WeakSet()
        self._moved: dict[int, bool] = {}  # on a host that does not have their rows yet; if their episodes continue
        self._begun: set[int] = set()  # workers of a lost host that `_move` has started already
        self._some_died = self._closed = False
        self._arrays: FleetArrays | None = None
        self._woken: dict[int, None] = {}
        self._sent: dict[int, int] = {}  # number of the last command that was sent to a group
        self._rewrites: dict[int, int] = {}
        self._numbers = itertools.count(1)
        placement.bind(self)  # last, because it may start threads that use all of these

    @property
    def hosts(self) -> Sequence[tuple[str, HostFacts]]:
        return self._placement.facts

    # --- moving workers on purpose

    @property
    def relocator(self) -> Relocator:
        return self

    @property
    def moves(self) -> Sequence[int]:
        return [worker for worker in self._placement.moves() if worker not in self._dead]

    def workers_of(self, link: Link) -> list[int]:
        return [worker for worker, other in list(self._links.items()) if other is link]

    def prepare(self, workers: Sequence[int], link: Link, seconds: float) -> dict[int, int]:
        """Build environments of workers on another host; return their process ids. Any thread may call this.

        Raise ChannelClosed if a worker is started there in another way, because its own host was lost.
        """
        starts = {}
        for worker in workers:
            with self._placing:
                if self._links.get(worker) is link:
                    raise ChannelClosed(STARTED_AGAIN)
                starts[worker] = link.call("start", self._specs[worker])
        pids = {}
        for worker, start in starts.items():
            hello, pids[worker] = link.call("hello", worker, start, seconds)
            self._placement.approve(link, hello)
        return pids

    def move(self, index: int) -> None:
        with self._lock:
            self._moved[index] = True
            old, (self._links[index], self._pids[index]) = self._links[index], self._placement.better_place(index)
            self._renew(index)
        try:
            old.call("kill", index)
        except HostLost as lost:
            self.lose(old, str(lost))

    def stay(self, index: int, reason: str) -> None:
        self._placement.stay(index, reason)

    # --- the life of workers

    def start(self, spec: WorkerSpec) -> None:
        index = spec.index
        if index not in self._specs:
            groups = tuple(group.index for group in spec.groups)
            self._specs[index] = PackedSpec(index, spec.name, groups, packed_by_value(spec, self._large), spec.modules)
            self._groups.update({group.index: range(group.start, group.stop) for group in spec.groups})
            self._links[index] = self._placement.host_of(index)
        if self._links[index] in self._lost:
            self._move(self._links[index])
        with self._lock:
            self._renew(index)
        if index not in self._begun:
            self._begin(index)
        self._begun.discard(index)

    def _renew(self, index: int) -> None:
        self._epochs[index] = self._epochs.get(index, 0) + 1
        self._channels[index] = RelayedChannel()
        self._dead.pop(index, None)

    def _move(self, lost: Link) -> None:
        """Start all workers of a lost host on other ones, at the same time."""
        workers = self.workers_of(lost)
        links = self._placement.replacements(lost, workers)
        with self._placing:
            self._links.update(links)
        self._moved = dict.fromkeys(workers, False) | self._moved
        for worker in workers:
            self._begin(worker)
            self._begun.add(worker)

    def _begin(self, worker: int) -> None:
        try:
            self._starts[worker] = self._links[worker].call("start", self._specs[worker])
        except HostLost as lost:
            self.lose(self._links[worker], str(lost))  # `hello` will raise

    def hello(self, index: int, seconds: float | None) -> Hello:
        hello, self._pids[index] = self._ask(index, "hello", index, self._starts.get(index, 0), seconds)
        assert isinstance(hello, Hello)
        self._placement.approve(self._links[index], hello)
        return hello

    def attach(self, index: int, arrays: FleetArrays) -> None:
        groups = self._specs[index].groups
        if self._arrays is None:
            self._arrays = arrays
            self._fleet = [self._groups[group] for group in sorted(self._groups)]
            self._transfer = RowTransfer(arrays, self._fleet, to_worker=True)
        rows = self._transfer.everything(groups) if index in self._moved else None
        set_at_start = self._ask(index, "attach", index, arrays.shape, self._fleet, rows)
        if not self._moved.pop(index, False):  # else the caller's rows, such as action masks, are still valid
            self._transfer.paste_start(set_at_start, groups)
        self._rewrites[index] = arrays.rewrites
        arrays.control.words[arrays.control.worker(index, WorkerWord.SLEEPING)] = 1  # so that `wake` is always called

    def _ask(self, index: int, method: str, *arguments: Any) -> Any:
        link = self._links[index]
        try:
            if index in self._dead:
                raise ChannelClosed
            return link.call(method, *arguments)
        except HostLost as lost:
            self.lose(link, str(lost))
            raise ChannelClosed from None

    def lose(self, link: Link, reason: str) -> None:
        """Give up a host: its workers count as dead, and its later messages are ignored. Any thread may call this."""
        with self._lock:
            self._lost.add(link)
            for worker, other in self._links.items():
                if other is link:
                    self._dead[worker] = reason
            self._some_died = True
            if not self._closed:
                self._bell.ring()

    def death(self, index: int) -> str | None:
        return self._dead.get(index)

    def stack(self, index: int) -> str:
        try:
            return str(self._ask(index, "stack", index))
        except ChannelClosed:
            return ""

    def kill(self, index: int) -> None:
        try:
            reason, reports = self._ask(index, "kill", index)
        except ChannelClosed:
            return
        for report in reports:
            self.deliver(self._links[index], report)
        self._dead[index] = reason

    def pid(self, index: int) -> int:
        return self._pids[index]

    def memory(self, index: int) -> int:
        return self._memory.get(index, 0)

    def local_envs(self) -> None:
        """Return None: the workers are elsewhere."""

    def close(self, seconds: float) -> None:
        with self._lock:
            links, self._arrays, self._closed = dict.fromkeys(self._links.values()), None, True
            self._links.clear()
        for wait in [link.close(seconds) for link in links]:  # all at the same time
            wait()
        self._placement.close()
        self.__dict__.pop("_transfer", None)  # frees the memory
        self._bell.close()
        self.block.close()

    # --- commands

    def channel(self, index: int) -> Channel:
        return self._channels[index]

    def wake(self, index: int) -> None:
        """Note that the worker has new commands; `flush` sends them."""
        self._woken[index] = None

    def flush(self) -> None:
        """Send one message to each host that has new commands."""
        by_link: dict[Link, list[int]] = {}
        for worker in self._woken:
            if worker not in self._dead:
                by_link.setdefault(self._links[worker], []).append(worker)
        self._woken.clear()
        messages = [(link, self._commands(workers)) for link, workers in by_link.items()]
        needed = {(commands.command, commands.weight_sets) for _, commands in messages}
        whole = {kind: self._transfer.whole(*kind) for kind in needed}
        for link, commands in messages:
            try:
                link.send(commands, whole[commands.command, commands.weight_sets])
            except HostLost as lost:
                self.lose(link, str(lost))

    def _commands(self, workers: list[int]) -> Commands:
        arrays = self._arrays
        assert arrays is not None
        words, control = arrays.control.words, arrays.control
        posted, requests, tasks, numbers = [], [], [], []
        for worker in workers:
            line = control.worker(worker, WorkerWord.POSTED)
            lockstep = words[line + WorkerWord.LOCKSTEP]
            posted.append(Posted(worker, self._epochs[worker], words[line], lockstep))
            for task, number in posted_tasks(control, self._specs[worker].groups, lockstep, self._sent):
                tasks.append(task)
                numbers.append(number)
            channel = self._channels[worker]
            requests += [(worker, request) for request in channel.requests]
            channel.requests.clear()
        rewritten = any(self._rewrites[worker] != arrays.rewrites for worker in workers)
        if rewritten:  # both slots go to the groups of this message only
            whole = {task.group for task in tasks}
            for worker in workers:
                if whole.issuperset(self._specs[worker].groups):
                    self._rewrites[worker] = arrays.rewrites
        self._transfer.define_columns(arrays.column_definitions)
        parcel = self._transfer.cut(tasks, observations=rewritten)
        return Commands(
            next(self._numbers),
            posted,
            tasks,
            numbers,
            requests,
            parcel,
            arrays.column_definitions or None,
            max(task.command for task in tasks),
            tuple(sorted({task.weight_set for task in tasks if task.command == Command.ROUTINE})),
        )

    # --- results

    def deliver(self, link: Link, report: Report) -> None:
        """Paste the results of a host into the block and ring the caller. Any thread may call this."""
        with self._lock:
            arrays = self._arrays
            old = [worker for worker, epoch in report.epochs.items() if self._epochs.get(worker) != epoch]
            ignored = link in self._lost or len(old) == len(report.epochs)
            if arrays is None or report.parcel is None or ignored:
                return
            if old:  # they were restarted since; the others wait for their results
                report = report.without(old, [g for worker in old for g in self._specs[worker].groups], self._transfer)
            assert report.parcel is not None
            self._transfer.paste(report.parcel, report.tasks)
            self._show(report.signs)
            for worker, reply in report.replies:
                self._channels[worker].replies.append(reply)
            show_results(arrays.control, report, {worker: self._specs[worker].groups for worker in report.epochs})
            if report.died is not None:
                (worker,) = report.epochs
                self._dead[worker], self._some_died = report.died, True
            self._bell.ring()

    def see(self, link: Link, signs: Sequence[Sign]) -> None:
        """Show the progress of the workers of a host to the supervisor. Any thread may call this."""
        with self._lock:
            if self._arrays is not None and link not in self._lost:
                self._show([sign for sign in signs if self._links[sign.worker] is link])

    def _show(self, signs: Sequence[Sign]) -> None:
        assert self._arrays is not None
        self._memory.update({sign.worker: sign.memory for sign in signs})
        show_signs(self._arrays.control, signs)

    def run_inline(self, timeouts: Timeouts) -> None:
        for link in dict.fromkeys(self._links.values()):
            link.run_inline(timeouts)

    def inline_step(self, timeouts: Timeouts) -> None:
        """Return None: the workers are elsewhere."""

    def wait(self, seconds: float) -> bool:
        rang = self._bell.wait(seconds)
        died, self._some_died = self._some_died, False
        return rang and not died

    def interrupt(self) -> None:
        self._bell.ring()
