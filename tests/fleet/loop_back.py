"""Backends without shared memory, in one process: every host has a block of its own, and everything sent is pickled.

`loop-back` has one sequential worker per host; `loop-back-hosts` has two hosts with worker processes, as on a cluster.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from envfleet.fleet import make
from envfleet.fleet.backends.base import Backend
from envfleet.fleet.backends.host import Commands, Host, PackedSpec, Report
from envfleet.fleet.backends.host_thread import HostThread
from envfleet.fleet.backends.link import HostLost, Link
from envfleet.fleet.backends.processes import ProcessesBackend
from envfleet.fleet.backends.remote import RemoteBackend
from envfleet.fleet.backends.sequential import SequentialBackend
from envfleet.fleet.channel import LocalChannel, dump, load_parts
from envfleet.fleet.hosting import Hosting
from envfleet.fleet.os_compat import default_start_method
from envfleet.fleet.spec import Timeouts
from envfleet.fleet.worker import Hello, Worker

__all__ = ["use_loop_back"]

HOSTS = 2
BEAT_SECONDS = 0.05


def sequential_hosts(workers: int) -> Backend:
    return RemoteBackend("threads", Placement(InlineLink, workers, killable=False))


def hosts_in_this_process(workers: int) -> Backend:
    return RemoteBackend("threads", Placement(ThreadLink, min(HOSTS, workers), killable=True))


def travelled(value: Any) -> Any:
    """Return what arrives when the value is sent to another machine."""
    return pickle.loads(dump(value))


class Placement:
    """Deals the workers out to a number of hosts; a lost host is replaced by a new one."""

    def __init__(self, link: Callable[[RemoteBackend], Link], hosts: int, *, killable: bool) -> None:
        self._link, self._hosts, self.killable = link, hosts, killable
        self.sign_seconds = 2 * BEAT_SECONDS
        self.links: list[Link] = []
        self.facts: list[Any] = []
        self.better: dict[int, tuple[Link, int]] = {}  # other hosts of workers, and their processes there
        self.stayed: dict[int, str] = {}

    def bind(self, backend: RemoteBackend) -> None:
        self._backend = backend

    def host_of(self, worker: int) -> Link:
        while len(self.links) <= worker % self._hosts:
            self.links.append(self._link(self._backend))
        return self.links[worker % self._hosts]

    def close(self) -> None:
        """Close hosts that nobody moved to; the other links are closed."""
        for link, _ in self.better.values():
            link.close(0.0)

    def approve(self, link: Link, hello: Hello) -> None:
        """All hosts are this machine."""

    def offer(self, *workers: int) -> Link:
        """Offer these workers a new host."""
        link = self._link(self._backend)
        self.links.append(link)
        pids = self._backend.prepare(workers, link, 60.0)
        self.better.update({worker: (link, pid) for worker, pid in pids.items()})
        return link

    def moves(self) -> list[int]:
        return list(self.better)

    def better_place(self, worker: int) -> tuple[Link, int]:
        return self.better.pop(worker)

    def stay(self, worker: int, reason: str) -> None:
        self.stayed[worker] = reason
        self.better.pop(worker)[0].close(0.0)

    def replacements(self, lost: Link, workers: Sequence[int]) -> dict[int, Link]:
        self.links[self.links.index(lost)] = new = self._link(self._backend)
        return dict.fromkeys(workers, new)


class PicklingChannel(LocalChannel):
    """Packs as a channel between processes does."""

    def pack(self, value: Any) -> Any:
        return dump(value)

    def send(self, value: Any) -> None:
        self.send_packed(dump(value))

    def receive(self, seconds: float | None = None) -> Any:
        return pickle.loads(self.receive_packed(seconds))


class PackedSequential(SequentialBackend):
    """A sequential backend for a host."""

    def start_packed(self, packed: PackedSpec) -> None:
        _, spec = packed.messages
        ours, theirs = PicklingChannel.pair()
        self._channels[packed.index] = ours
        self._workers[packed.index] = Worker(load_parts([bytearray(part) for part in spec]), theirs, None)

    def interrupt(self) -> None:
        """Nothing waits here."""


class InlineLink:
    """A host that works in the caller's thread when the caller waits."""

    def __init__(self, backend: RemoteBackend) -> None:
        self._backend, self._host = backend, Host(PackedSequential())

    def call(self, method: str, *arguments: Any) -> Any:
        work = self._host.backend.stack if method == "stack" else getattr(self._host, method)
        return travelled(work(*travelled(arguments)))

    def send(self, commands: Commands, whole: Any) -> None:
        self._host.post(*travelled((commands, whole)))

    def run_inline(self, timeouts: Timeouts) -> None:
        while self._host.busy:
            self._host.backend.run_inline(timeouts)
            for report in self._host.serve(lambda: False):
                self._backend.deliver(self, travelled(report))
            self._backend.see(self, self._host.signs())

    def close(self, seconds: float) -> Callable[[], None]:
        self._host.close(seconds)
        return lambda: None


class ThreadLink:
    """A host with worker processes, in a thread of this process."""

    def __init__(self, backend: RemoteBackend) -> None:
        self._backend, self.lost = backend, False
        self.host = Host(ProcessesBackend(default_start_method()))
        self._thread = HostThread(self.host, self._deliver, self._fail)
        self._closed = threading.Event()
        self._beats = threading.Thread(target=self._beat, daemon=True)
        self._beats.start()

    def _beat(self) -> None:
        while not self._closed.wait(BEAT_SECONDS):
            self._backend.see(self, self._thread.call("signs"))

    def _deliver(self, report: Report) -> None:
        self._backend.deliver(self, travelled(report))

    def _fail(self, error: BaseException) -> None:
        self._backend.lose(self, f"its host failed: {error!r}")

    def call(self, method: str, *arguments: Any) -> Any:
        if self.lost:
            raise HostLost("its host was unplugged")
        return travelled(self._thread.call(method, *travelled(arguments)))

    def send(self, commands: Commands, whole: Any) -> None:
        self._thread.send(*travelled((commands, whole)))

    def run_inline(self, timeouts: Timeouts) -> None:
        """Its host has its own thread."""

    def unplug(self) -> None:
        """Let the host vanish with all of its workers."""
        self.lost = True
        self._thread.close(0.0)
        self._backend.lose(self, "its host was unplugged")

    def close(self, seconds: float) -> Callable[[], None]:
        if not self._closed.is_set():
            self._closed.set()
            self._beats.join()
            if not self.lost:
                self._thread.close(seconds)
        return lambda: None


BACKENDS = {"loop-back": sequential_hosts, "loop-back-hosts": hosts_in_this_process}


def use_loop_back(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let fleets of the threads backend run on this backend instead."""
    original = make.backend_of

    def backend(named: str, workers: int, hosting: Hosting) -> Backend:
        return BACKENDS[name](workers) if named == "threads" else original(named, workers, hosting)

    monkeypatch.setattr(make, "backend_of", backend)
