"""Hosts on the nodes of a Ray cluster.

Each node that is used gets one actor, a host with worker processes of our own (`host_actor.py`). Ray places it, carries
messages and kills it. Everything else is ours, because Ray's own restarts are slow and know nothing of our state: they
are switched off. One thread receives reports, pastes them, and asks every host for a sign of life each second. A host
that does not answer for some seconds is given up, even if Ray still lists it as alive: it is killed, its later reports
are ignored, and its workers are started on another node, or shared out over the remaining hosts. `ray_nodes.py` looks
at the nodes themselves.
"""

from __future__ import annotations

import concurrent.futures
import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from envfleet.errors import ClusterLostError, EnvfleetError, ResourceError, SettingsError
from envfleet.fleet.backends.entry import SINGLE_THREADED
from envfleet.fleet.backends.host import Report
from envfleet.fleet.backends.link import Link
from envfleet.fleet.backends.packing import unpack
from envfleet.fleet.backends.ray_cluster import (
    INLINE_LIMITS,
    ActorDiedError,
    RayError,
    RayTaskError,
    RuntimeEnv,
    connect,
    live_nodes,
    ray,
)
from envfleet.fleet.backends.ray_link import RayLink, words_of
from envfleet.fleet.backends.ray_nodes import HEAD_BEATS, NodeWatch
from envfleet.fleet.backends.remote import RemoteBackend
from envfleet.fleet.channel import ChannelClosed
from envfleet.fleet.cluster import ClusterSettings, HostLoad, Node, check_hosts, check_torch, divide, share_out
from envfleet.fleet.numerics import PORTABLE, measure_torch
from envfleet.fleet.transfer import Array
from envfleet.fleet.worker import Hello
from envfleet.wording import listed

__all__ = ["RayHosts"]

_log = logging.getLogger("envfleet")

BEAT_SECONDS = 1.0
PATIENCE_SECONDS = 60.0  # how long to wait for a node if none is left
FREE_SECONDS = 5.0
FORGIVE_SECONDS = 60.0  # until a node that was silent is used again; its old host has ended itself by then
REPORT_SECONDS = 3.0  # until the free CPUs that a node reports do not include those of a new host


def _runtime_env(settings: ClusterSettings) -> dict[str, Any]:
    """The runtime environment of hosts: that of the user, with our variables."""
    given = settings.read_runtime_env()
    pins = PORTABLE if settings.numerics == "portable" else {}
    ours = {**SINGLE_THREADED, **pins, **INLINE_LIMITS}
    merged = {**given, "env_vars": {**ours, **given.get("env_vars", {})}}
    try:
        RuntimeEnv(**merged)
    except (TypeError, ValueError) as error:
        raise SettingsError(
            f"runtime_env: Ray refuses {settings.runtime_env}: {error}",
            hint="see https://docs.ray.io/en/latest/ray-core/handling-dependencies.html",
        ) from None
    return merged


class RayHosts:
    """Places hosts on the nodes of a cluster, receives their reports, and watches over them."""

    killable = True
    sign_seconds = 2 * BEAT_SECONDS  # one beat, and the way of its answer

    def __init__(self, workers: int, settings: ClusterSettings) -> None:
        self._settings = settings
        self._runtime_env = _runtime_env(settings)
        connect(settings, workers)
        self._events: queue.SimpleQueue[tuple[RayLink, concurrent.futures.Future[Any]]] = queue.SimpleQueue()
        self._stored: tuple[Array, Any] | None = None
        # Nodes that lost a host, by id, and until when they are not used: Ray lists dead nodes as alive for a while.
        self._suspects: dict[str, float] = {}
        self._closed = threading.Event()
        self._links: list[RayLink] = []
        self._of_worker: dict[int, RayLink] = {}
        self._ended: str | None = None  # why no host can be placed any more
        self._torch = ""  # digest of the first host
        for node, hosted in self._plan(workers):
            link = self._start(node, min(len(hosted), node.free))
            self._of_worker.update(dict.fromkeys(hosted, link))
        try:
            self.facts = [(link.node.name, link.facts()) for link in self._links]
            for place, link in enumerate(self._links):
                link.place = place
            check_hosts(self.facts, settings)
        except BaseException:
            self.close()
            raise

    def _plan(self, workers: int) -> list[tuple[Node, range]]:
        """Divide the workers over the nodes; CPUs of a fleet that was just closed become free after a moment."""
        until = time.monotonic() + FREE_SECONDS
        while True:
            nodes = live_nodes()
            try:
                return divide(workers, nodes, overcommit=self._settings.overcommit)
            except ResourceError:
                if time.monotonic() > until or workers > sum(node.cpus for node in nodes):
                    raise
            time.sleep(0.2)

    def _start(self, node: Node, cpus: int) -> RayLink:
        link = RayLink(self, node, cpus, self._runtime_env)
        self._links.append(link)
        return link

    # --- placing

    def bind(self, backend: RemoteBackend) -> None:
        self._backend = backend
        self._watch = NodeWatch(self, backend)
        self._thread = threading.Thread(target=self._run, name="envfleet-ray", daemon=True)
        self._thread.start()

    def host_of(self, worker: int) -> Link:
        return self._of_worker.pop(worker)  # a lost host must not be kept

    def approve(self, link: Link, hello: Hello) -> None:
        """Compare torch on a host with torch here, or on the first host if all nodes use pinned kernels."""
        assert isinstance(link, RayLink)
        if hello.torch in ("", link.torch):  # it does not use torch, or another worker of the host has reported it
            return
        link.torch, self._torch = hello.torch, self._torch or hello.torch
        if link.place is not None:
            name, facts = self.facts[link.place]
            self.facts[link.place] = name, replace(facts, numerics=replace(facts.numerics, torch=hello.torch))
        ours = "" if self._settings.numerics == "portable" else measure_torch()
        try:
            check_torch(link.node.name, hello.torch, ours or self._torch, self._settings)
        except SettingsError as error:
            if link.place is not None:
                raise
            self.lose(link, words_of(error))  # a later host: the run continues on another one
            raise ChannelClosed(words_of(error)) from None

    def hosts(self) -> list[tuple[RayLink, list[int]]]:
        """The live hosts and their workers."""
        return [(link, self._backend.workers_of(link)) for link in list(self._links) if link.lost is None]

    def start_host(self, node: Node, cpus: int) -> RayLink:
        """A new host on a node; raise an error that says why the node cannot be used."""
        link = self._start(node, cpus)
        try:
            found = [(node.name, link.facts())]
            check_hosts(found, self._settings, first=self.facts[0][1])
        except EnvfleetError as error:
            self.lose(link, words_of(error))
            raise
        return link

    def least_loaded(self) -> RayLink | None:
        """The host with the fewest workers beyond its CPUs; None if all are lost or on nodes that are being drained."""
        loads = [(len(workers) - link.cpus, link) for link, workers in self._remaining()]
        return min(loads, key=lambda load: load[0])[1] if loads else None

    def replacements(self, lost: Link, workers: Sequence[int]) -> dict[int, Link]:
        """A new host on a node with free CPUs, or else the remaining hosts; the last resort is any free CPU."""
        assert isinstance(lost, RayLink)
        self._watch.forget(workers)
        until = time.monotonic() + PATIENCE_SECONDS
        while self._ended is None:
            others = self._shared_out(workers)
            for node in self._candidates(len(workers) if others else 1):
                try:
                    link = self.start_host(node, min(len(workers), node.free))
                except EnvfleetError as error:
                    _log.warning("node %s cannot replace node %s: %s", node.name, lost.node.name, words_of(error))
                    continue
                _log.warning("the workers of node %s continue on node %s", lost.node.name, node.name)
                return dict.fromkeys(workers, link)
            if others:
                names = listed([f"node {link.node.name}" for link in dict.fromkeys(others.values())])
                _log.warning("the workers of node %s continue on %s too", lost.node.name, names)
                return dict(others)
            if time.monotonic() > until:
                self._ended = f"no node of the cluster is left: {lost.lost}"
            time.sleep(1.0)
        raise ClusterLostError(
            self._ended,
            hint="start a cluster, then continue from the last checkpoint: envfleet resume RUN --address auto",
        )

    def _shared_out(self, workers: Sequence[int]) -> dict[int, RayLink]:
        """The remaining hosts for these workers; empty if there are none."""
        hosts = self._remaining()
        loads = [HostLoad(link.node.id, link.cpus, theirs) for link, theirs in hosts]
        return {worker: hosts[host][0] for worker, host in share_out(workers, loads).items()} if hosts else {}

    def _remaining(self) -> list[tuple[RayLink, list[int]]]:
        """Hosts that have workers and are not on nodes that are being drained, in the order of their first workers."""
        found = [(link, workers) for link, workers in self.hosts() if workers and not link.drained]
        return sorted(found, key=lambda host: min(host[1]))

    def _candidates(self, workers: int) -> list[Node]:
        try:
            nodes = live_nodes()
        except (RayError, RuntimeError, ConnectionError):  # the head does not answer
            return []
        return [node for node in self.usable(nodes) if node.free >= workers]

    def usable(self, nodes: Sequence[Node]) -> list[Node]:
        """Nodes that are not suspected, with the CPUs that are free; Ray counts those of a new host only later."""
        now = time.monotonic()
        recent = now - REPORT_SECONDS
        found = []
        for node in nodes:
            new = [link for link in list(self._links) if link.node.id == node.id and link.lost is None]
            taken = sum(link.cpus for link in new if link.heard is None or link.started > recent)
            if now >= self._suspects.get(node.id, -math.inf):
                found.append(replace(node, free=node.free - taken))
        return found

    # --- moving workers on purpose

    def moves(self) -> Sequence[int]:
        return self._watch.moves()

    def better_place(self, worker: int) -> tuple[Link, int]:
        return self._watch.better_place(worker)

    def stay(self, worker: int, reason: str) -> None:
        self._watch.stay(worker, reason)

    # --- messages

    def stored(self, whole: Array) -> Any:
        """A reference to this array in the object store, stored once for all hosts."""
        if self._stored is None or self._stored[0] is not whole:
            self._stored = whole, ray.put(whole)
        return self._stored[1]

    def expect(self, link: RayLink, ref: Any, arrived: Callable[[], None] = lambda: None) -> None:
        """Let the thread handle the result when it comes; `arrived` is called at once, in another thread."""

        def done(future: concurrent.futures.Future[Any]) -> None:
            arrived()
            self._events.put((link, future))

        ref.future().add_done_callback(done)

    def lose(self, link: RayLink, reason: str, *, node: bool = True, silent: bool = False) -> None:
        """Give up a host; `node` says whether its node may be gone too, `silent` that it just did not answer."""
        if link.lost is None:
            if node:
                self._suspects[link.node.id] = time.monotonic() + FORGIVE_SECONDS if silent else math.inf
            link.abandon(reason)
            self._backend.lose(link, reason)

    def _run(self) -> None:
        try:
            self._receive()
        except BaseException as error:
            _log.error("the thread that receives reports has failed", exc_info=True)
            if not self._closed.is_set():
                self.end(f"reports of the hosts could not be handled: {type(error).__name__}: {error}")

    def _receive(self) -> None:
        due = time.monotonic() + BEAT_SECONDS
        while not self._closed.is_set():
            try:
                link, future = self._events.get(timeout=max(0.001, due - time.monotonic()))
                self._handle(link, future)
            except queue.Empty:
                pass
            if time.monotonic() >= due:
                due = time.monotonic() + BEAT_SECONDS
                for link in list(self._links):
                    if link.lost is None:
                        link.beat()
                    else:
                        self._links.remove(link)  # no other thread removes links
                if self._watch.head_is_lost() and self._ended is None:
                    self.end(f"{self._watch.head} has not answered for {HEAD_BEATS * BEAT_SECONDS:g} s")

    def end(self, reason: str) -> None:
        """Give up all hosts. Any thread may call this."""
        self._ended = reason
        _log.warning("%s: the run ends", reason)
        for link, _ in self.hosts():
            link.stop()
            self.lose(link, reason)

    def _handle(self, link: RayLink, future: concurrent.futures.Future[Any]) -> None:
        if link.lost is not None:
            return
        try:
            result = unpack(future.result())
        except RayTaskError as error:
            self.lose(link, f"its host on node {link.node.name} failed: {error}")
        except RayError as error:
            self.lose(link, link.reason_of(error), node=not isinstance(error, ActorDiedError))
        else:
            if isinstance(result, Report):
                self._backend.deliver(link, result)
                if not result.last:
                    link.more(result.number)
            else:
                self._backend.see(link, result)

    def close(self) -> None:
        self._closed.set()
        if hasattr(self, "_watch"):
            self._watch.close()
        for link in list(self._links):
            if link.lost is None:
                link.abandon("the fleet was closed")
        if hasattr(self, "_thread") and self._thread is not threading.current_thread():
            self._thread.join()
