"""The `processes` backend: uses every core, isolates environments, and can kill a hung worker."""

from __future__ import annotations

import copy
import logging
import os
import select
import time
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from envfleet.errors import CannotBeSentError, EnvfleetError
from envfleet.fleet.arrays import FleetArrays
from envfleet.fleet.backends.entry import STACK_SIGNAL, Links, Prelude
from envfleet.fleet.backends.fork_server import fork_server, start_forked
from envfleet.fleet.backends.host import PackedSpec
from envfleet.fleet.backends.launch import Process, fork_worker, spawn_worker
from envfleet.fleet.channel import CallerChannel, Channel, dump_parts
from envfleet.fleet.memory import Block
from envfleet.fleet.os_compat import Doorbell, can_spin, default_start_method, nameless_file
from envfleet.fleet.spec import Timeouts, WorkerSpec
from envfleet.fleet.worker import Hello
from envfleet.importing import imported
from envfleet.machine import private_memory

__all__ = ["ProcessesBackend", "own_registrations", "packed_spec", "resolved"]

_log = logging.getLogger("envfleet")


class _WorkerProcess:
    """The process of one worker, and the resources that connect it with this one."""

    def __init__(self, process: Process, channel: CallerChannel, bell: Doorbell, stack: int) -> None:
        self.process, self.channel, self.bell, self.stack = process, channel, bell, stack

    def release(self) -> None:
        self.process.release()
        self.channel.close()
        self.bell.close()
        os.close(self.stack)


class ProcessesBackend:
    """One process per worker, connected to this one by a socket, two doorbells and anonymous shared memory."""

    name = "processes"
    killable = True
    inline = False
    sign_seconds = 0.0
    flush = None
    hosts = ()
    relocator = None

    def __init__(self, start_method: str) -> None:
        self.start_method = start_method
        self._serves = start_method != "spawn" and "forkserver" in (start_method, default_start_method())
        self.spins = can_spin()
        self.block = Block.create(shared=True)
        self._caller_bell = Doorbell.create()
        self._deaths_show = False  # whether `wait` also returns when a worker dies
        self._workers: dict[int, _WorkerProcess] = {}
        self._attached: set[int] = set()  # workers that serve commands, and see STOP
        self._specs: dict[int, list[list[bytes]]] = {}  # pickled; kept for restarts
        self._large: list[bytes] = []  # the large arrays in them, each stored once

    def start(self, spec: WorkerSpec) -> None:
        again = spec.index in self._specs
        messages = self._pickled(spec)
        fork = self.start_method == "fork" and not (again and messages)
        if self._serves and not fork:
            fork_server().load(spec.modules)
            spec.load()  # the caller needs them too, and the server imports them at the same time
        self._start(spec.index, spec.name, messages, spec if fork else None)

    def start_packed(self, packed: PackedSpec) -> None:
        if self._serves:
            fork_server().load(packed.modules)
        self._start(packed.index, packed.name, packed.messages, None)

    def _start(self, index: int, name: str, messages: list[list[bytes]], forked: WorkerSpec | None) -> None:
        """Start a worker, and send it its messages unless it is `forked` with its spec."""
        before = self._workers.get(index)  # replaced at once: another thread may ask for its pid
        channel = CallerChannel()
        bell, stack = Doorbell.create(), nameless_file("envfleet-stack")
        assert self.block.fd is not None
        links = Links(
            name,
            os.getpid(),
            channel.worker_fd,
            (bell.read_fd, bell.write_fd),
            (self._caller_bell.read_fd, self._caller_bell.write_fd),
            self.block.fd,
            stack,
            self.spins,
        )
        try:
            process = self._launch(links, forked, channel)
        except BaseException:
            channel.close()
            bell.close()
            os.close(stack)
            raise
        finally:
            os.close(channel.worker_fd)
        self._workers[index] = _WorkerProcess(process, channel, bell, stack)
        self._attached.discard(index)
        if before is not None:
            before.release()
        self._watch_all()
        if forked is None:
            channel.send(Prelude.of_this_process())
            for parts in messages:
                channel.send_parts(parts)

    def _launch(self, links: Links, forked: WorkerSpec | None, channel: CallerChannel) -> Process:
        # A restart is not forked even with start_method="fork": this process may have used OpenMP since, and its
        # fork could hang in a thread pool whose threads were not copied.
        if forked is not None:
            ours = [channel.fd, *(worker.channel.fd for worker in self._workers.values())]
            return fork_worker(links, forked, ours)
        return start_forked(links) if self._serves else spawn_worker(links)

    def _pickled(self, spec: WorkerSpec) -> list[list[bytes]]:
        """The caller's registered envs and the spec, pickled once in parts; empty if only a fork can pass them on."""
        if spec.index not in self._specs:
            try:
                self._specs[spec.index] = packed_spec(spec, self._large)
            except CannotBeSentError:
                if self.start_method != "fork":
                    raise
                self._specs[spec.index] = []
        return self._specs[spec.index]

    def hello(self, index: int, seconds: float | None) -> Hello:
        for worker in self._workers.values():
            worker.channel.pump()  # keeps sending specs that are too long for the socket while the workers start
        answer = self._workers[index].channel.receive(seconds)
        if isinstance(answer, EnvfleetError):
            raise answer
        assert isinstance(answer, Hello)
        return answer

    def attach(self, index: int, arrays: FleetArrays) -> None:
        channel = self._workers[index].channel
        channel.send(arrays.shape)
        failure = channel.receive()
        if failure is not None:
            raise failure
        self._attached.add(index)

    def channel(self, index: int) -> Channel:
        return self._workers[index].channel

    def wake(self, index: int) -> None:
        self._workers[index].bell.ring()

    def interrupt(self) -> None:
        """Let a `wait` in another thread return."""
        self._caller_bell.ring()

    def run_inline(self, timeouts: Timeouts) -> None:
        """Do nothing: no worker runs in the caller's thread."""

    def _watch_all(self) -> None:
        """Make `wait` return on a ring, a message or a death."""
        self._poll = select.poll()
        self._poll.register(self._caller_bell.read_fd, select.POLLIN)
        self._channels = {
            worker.channel.fd: worker.channel for worker in self._workers.values() if not worker.channel.closed
        }
        for fd in self._channels:
            self._poll.register(fd, select.POLLIN)
        pidfds = [worker.process.pidfd for worker in self._workers.values()]
        self._deaths_show = None not in pidfds
        for pidfd in pidfds:
            if pidfd is not None:
                self._poll.register(pidfd, select.POLLIN)

    def inline_step(self, timeouts: Timeouts) -> None:
        """Return None: no worker runs in the caller's thread."""

    def local_envs(self) -> None:
        """Return None: no worker runs in the caller's thread."""

    def wait(self, seconds: float) -> bool:
        if not self._deaths_show:  # no pidfd on this system: look often
            seconds = min(seconds, 0.02)
        sending = [channel for channel in self._channels.values() if channel.unsent]
        for channel in sending:
            self._poll.modify(channel.fd, select.POLLIN | select.POLLOUT)
        ready = [fd for fd, _ in self._poll.poll(max(0, int(seconds * 1000 + 0.999)))]
        for channel in sending:
            self._poll.modify(channel.fd, select.POLLIN)
        rang = False
        for fd in ready:
            if fd == self._caller_bell.read_fd:
                self._caller_bell.quieten()
                rang = True
            elif fd in self._channels:
                rang = self._pump(self._channels[fd]) or rang
            else:
                self._poll.unregister(fd)  # a dead worker: poll would report it forever
                return False
        return rang

    def _pump(self, channel: CallerChannel) -> bool:
        channel.pump()
        if channel.closed:  # poll would report it as readable forever
            self._poll.unregister(channel.fd)
            del self._channels[channel.fd]
        return not channel.closed

    def death(self, index: int) -> str | None:
        return self._workers[index].process.ending()

    def stack(self, index: int) -> str:
        worker = self._workers[index]
        if worker.process.ending() is not None:  # faulthandler wrote it at the crash
            return os.pread(worker.stack, 65536, 0).decode(errors="replace")
        worker.process.signal(STACK_SIGNAL)
        until, text = time.monotonic() + 1.0, b""
        while time.monotonic() < until:
            time.sleep(0.02)
            before, text = text, os.pread(worker.stack, 65536, 0)
            if text and text == before:
                break
        return text.decode(errors="replace")

    def kill(self, index: int) -> None:
        self._workers[index].process.kill()

    def pid(self, index: int) -> int:
        return self._workers[index].process.pid

    def memory(self, index: int) -> int:
        worker = self._workers.get(index)  # another thread may be starting or closing it
        return 0 if worker is None else private_memory(worker.process.pid)

    def close(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        for index, worker in list(self._workers.items()):
            worker.bell.ring()
            if index not in self._attached and not worker.channel.closed:
                worker.channel.send(None)  # it closes its environments and ends
        while self._workers:  # another thread may be restarting a worker right now
            index, worker = self._workers.popitem()
            if not worker.process.wait(max(0.0, until - time.monotonic())):
                _log.debug("worker %d did not close in time and was killed", index)
                worker.process.kill()
            worker.release()
        self._specs.clear()
        self._large.clear()
        self._caller_bell.close()
        self.block.close()


def packed_spec(spec: WorkerSpec, kept: list[bytes]) -> list[list[bytes]]:
    """The caller's registered environments and the spec, pickled in parts; see `dump_parts` for `kept`."""
    try:
        return [dump_parts(each, kept) for each in (own_registrations(), spec)]
    except Exception as error:
        raise CannotBeSentError(
            f"the environment cannot be sent to a worker process: {type(error).__name__}: {error}",
            hint="build what cannot be pickled (files, locks, windows, connections) inside the function "
            "that makes the environment, or use start_method='fork' or backend='threads'",
        ) from None


def own_registrations() -> list[Any]:
    """Specs of environments registered by the user or by plugins, which a new interpreter does not know."""
    foreign = [
        spec
        for spec in gymnasium.registry.values()
        if not (isinstance(spec.entry_point, str) and spec.entry_point.startswith("gymnasium."))
    ]
    return [resolved(spec) for spec in foreign]


def resolved(spec: EnvSpec) -> EnvSpec:
    """Return the spec, with an entry point in the user's main module resolved, since workers do not import that."""
    entry = spec.entry_point
    if not isinstance(entry, str) or not entry.startswith("__main__:"):
        return spec
    here: Any = copy.copy(spec)
    here.entry_point = imported(entry)
    return here  # type: ignore[no-any-return]
