"""Hosts on the nodes of a Ray cluster.

Each node that is used gets one actor, a host with worker processes of our own (`host_actor.py`). Ray places it, carries
messages and kills it. Everything else is ours, because Ray's own restarts are slow and know nothing of our state: they
are switched off. One thread receives reports, pastes them, and asks every host for a sign of life each second. A host
that does not answer for some seconds is given up, even if Ray still lists it as alive: it is killed, its later reports
are ignored, and its workers are started on another node.
"""

from __future__ import annotations

import concurrent.futures
import logging
import queue
import threading
import time
from collections.abc import Sequence
from typing import Any

from envfleet.errors import EnvfleetError, ResourceError, WorkerError
from envfleet.fleet.backends.by_value import dumped_by_value
from envfleet.fleet.backends.entry import SINGLE_THREADED
from envfleet.fleet.backends.host import Commands, Report
from envfleet.fleet.backends.host_actor import HostActor
from envfleet.fleet.backends.link import HostLost, Link
from envfleet.fleet.backends.ray_cluster import (
    ActorDiedError,
    NodeAffinitySchedulingStrategy,
    RayError,
    RayTaskError,
    connect,
    live_nodes,
    ray,
)
from envfleet.fleet.backends.remote import RemoteBackend
from envfleet.fleet.cluster import ClusterSettings, HostFacts, Node, check_hosts, divide, reason_of_loss
from envfleet.fleet.numerics import PORTABLE
from envfleet.fleet.spec import Timeouts
from envfleet.fleet.transfer import Array

__all__ = ["RayHosts"]

_log = logging.getLogger("envfleet")

BEAT_SECONDS = 1.0
SILENCE_SECONDS = 8.0  # after this long without an answer, a host is given up
START_SECONDS = 600.0  # until an actor answers; a runtime environment may have to be installed
PATIENCE_SECONDS = 60.0  # how long to wait for a node if none is left
BY_VALUE_BYTES = 100_000  # Ray sends smaller values with the call, larger ones through its object store
FREE_SECONDS = 5.0
CALLS_AT_ONCE = 32


def _words(error: EnvfleetError) -> str:
    """An error without its hint."""
    return str(error).partition("\nhint:")[0]


# --- hosts


class RayLink:
    """The connection to the host on one node."""

    def __init__(self, hosts: RayHosts, node: Node, cpus: int, runtime_env: dict[str, Any]) -> None:
        self.node, self._hosts = node, hosts
        self.workers = cpus  # how many it runs
        self.lost: str | None = None  # why it was given up
        self.heard: float | None = None  # when it last answered, once it has
        self._asked = False  # whether an answer is pending
        self._actor = (
            ray.remote(concurrency_groups={"beat": 1})(HostActor)
            .options(
                num_cpus=cpus,
                max_restarts=0,
                max_task_retries=0,
                max_concurrency=CALLS_AT_ONCE,
                runtime_env=runtime_env,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
            )
            .remote()
        )
        self._facts = self._actor.facts.remote()

    def facts(self) -> HostFacts:
        """Wait until the host answers; raise an error that says what is missing on its node."""
        try:
            found = self._result(self._facts.future(), START_SECONDS)
        except HostLost as lost:
            raise WorkerError(
                f"node {self.node.name}: {lost}",
                hint="envfleet must be installed on every node, in the same version of Python",
            ) from None
        assert isinstance(found, HostFacts)
        self.heard = time.monotonic()
        return found

    def call(self, method: str, *arguments: Any) -> Any:
        self._refuse_if_shut_down()
        done, value = self._result(self._actor.call.remote(method, dumped_by_value(arguments)).future())
        if done:
            return value
        if isinstance(value, WorkerError) and method == "hello":
            raise WorkerError(
                f"node {self.node.name}: {_words(value)}",
                hint="install what is missing on every node, or describe it in a file for --runtime-env",
            )
        raise value

    def _result(self, future: concurrent.futures.Future[Any], seconds: float | None = None) -> Any:
        until = None if seconds is None else time.monotonic() + seconds
        while self.lost is None:
            try:
                return future.result(0.5)
            except concurrent.futures.TimeoutError:
                if until is not None and time.monotonic() > until:
                    raise HostLost(f"it did not answer within {seconds:g} s") from None
            except RayTaskError as error:
                raise WorkerError(f"node {self.node.name}: {error}") from None
            except RayError as error:
                raise HostLost(self.reason_of(error)) from None
        raise HostLost(self.lost)

    def reason_of(self, error: RayError) -> str:
        """Why a host is lost, in words."""
        return reason_of_loss(self.node.name, type(error).__name__, str(error))

    def _refuse_if_shut_down(self) -> None:
        """Raise HostLost after `ray.shutdown()`, since a call would start a new cluster."""
        if not ray.is_initialized():
            raise HostLost("Ray was shut down")

    def send(self, commands: Commands, whole: Array) -> None:
        self._refuse_if_shut_down()
        given = whole if whole.nbytes < BY_VALUE_BYTES else self._hosts.stored(whole)
        self._hosts.expect(self, self._actor.run.remote(commands, given))

    def more(self, number: int) -> None:
        """Ask for the next report of a message."""
        self._hosts.expect(self, self._actor.more.remote(number))

    def beat(self) -> None:
        """Ask for a sign of life, unless an answer is pending; give up a host that is silent for too long."""
        if self.heard is None or self.lost is not None or not ray.is_initialized():
            return
        if not self._asked:
            self._asked = True
            ref = self._actor.beat.options(concurrency_group="beat").remote()
            self._hosts.expect(self, ref)
        elif time.monotonic() - self.heard > SILENCE_SECONDS:
            self._hosts.lose(self, f"node {self.node.name} has not answered for {SILENCE_SECONDS:g} s")

    def answered(self) -> None:
        self._asked, self.heard = False, time.monotonic()

    def run_inline(self, timeouts: Timeouts) -> None:
        """Nothing runs in the caller's thread."""

    def abandon(self, reason: str) -> None:
        """Kill the host, which may still live and be out of reach."""
        self.lost = self.lost or reason
        if ray.is_initialized():
            ray.kill(self._actor, no_restart=True)

    def close(self, seconds: float) -> None:
        if self.lost is None and ray.is_initialized():
            try:
                self._actor.close.remote(seconds).future().result(seconds + 5.0)
            except (RayError, concurrent.futures.TimeoutError):
                pass  # it is killed below
            self.abandon("the fleet was closed")


class RayHosts:
    """Places hosts on the nodes of a cluster, receives their reports, and watches over them."""

    killable = True

    def __init__(self, workers: int, settings: ClusterSettings) -> None:
        connect(settings, workers)
        given = settings.read_runtime_env()
        pins = PORTABLE if settings.numerics == "portable" else {}
        self._runtime_env = {**given, "env_vars": {**SINGLE_THREADED, **pins, **given.get("env_vars", {})}}
        self._events: queue.SimpleQueue[tuple[RayLink, concurrent.futures.Future[Any]]] = queue.SimpleQueue()
        self._stored: tuple[Array, Any] | None = None
        self._suspects: set[str] = set()  # nodes that lost a host, by id: Ray lists dead nodes as alive for a while
        self._closed = threading.Event()
        self._links: list[RayLink] = []
        self._of_worker: dict[int, RayLink] = {}
        for node, hosted in self._plan(workers):
            link = self._start(node, len(hosted))
            self._of_worker.update(dict.fromkeys(hosted, link))
        try:
            self.facts = [(link.node.name, link.facts()) for link in self._links]
            check_hosts(self.facts, settings)
        except BaseException:
            self.close()
            raise

    @staticmethod
    def _plan(workers: int) -> list[tuple[Node, range]]:
        """Divide the workers over the nodes; CPUs of a fleet that was just closed become free after a moment."""
        until = time.monotonic() + FREE_SECONDS
        while True:
            nodes = live_nodes()
            try:
                return divide(workers, nodes)
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
        self._thread = threading.Thread(target=self._run, name="envfleet-ray", daemon=True)
        self._thread.start()

    def host_of(self, worker: int) -> Link:
        return self._of_worker[worker]

    def replacement(self, lost: Link, workers: Sequence[int]) -> Link:
        """A new host on a node with free CPUs, or else one of the remaining hosts."""
        assert isinstance(lost, RayLink)
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            for node in self._candidates(len(workers)):
                link = self._start(node, len(workers))
                try:
                    link.facts()
                except EnvfleetError as error:
                    _log.warning("node %s cannot replace node %s: %s", node.name, lost.node.name, _words(error))
                    self.lose(link, _words(error))
                    continue
                _log.warning("the workers of node %s continue on node %s", lost.node.name, node.name)
                return link
            others = [link for link in self._links if link.lost is None]
            if others:
                link = min(others, key=lambda each: each.workers)
                link.workers += len(workers)
                _log.warning("the workers of node %s continue on node %s too", lost.node.name, link.node.name)
                return link
            if time.monotonic() > until:
                raise WorkerError(
                    f"no node of the cluster is left: {lost.lost}",
                    hint="the last checkpoint is complete: start a cluster and use envfleet resume RUN",
                )
            time.sleep(1.0)

    def _candidates(self, workers: int) -> list[Node]:
        try:
            nodes = live_nodes()
        except (RayError, RuntimeError, ConnectionError):  # the head does not answer
            return []
        return [node for node in nodes if node.free >= workers and node.id not in self._suspects]

    # --- messages

    def stored(self, whole: Array) -> Any:
        """A reference to this array in the object store, stored once for all hosts."""
        if self._stored is None or self._stored[0] is not whole:
            self._stored = whole, ray.put(whole)
        return self._stored[1]

    def expect(self, link: RayLink, ref: Any) -> None:
        """Let the thread handle the result when it comes."""
        ref.future().add_done_callback(lambda future: self._events.put((link, future)))

    def lose(self, link: RayLink, reason: str, *, node: bool = True) -> None:
        """Give up a host; `node` says whether its node may be gone too."""
        if link.lost is None:
            if node:
                self._suspects.add(link.node.id)
            link.abandon(reason)
            self._backend.lose(link, reason)

    def _run(self) -> None:
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
                    link.beat()

    def _handle(self, link: RayLink, future: concurrent.futures.Future[Any]) -> None:
        if link.lost is not None:
            return
        try:
            result = future.result()
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
                link.answered()
                self._backend.see(link, result)

    def close(self) -> None:
        self._closed.set()
        for link in self._links:
            if link.lost is None:
                link.abandon("the fleet was closed")
        if hasattr(self, "_thread") and self._thread is not threading.current_thread():
            self._thread.join()
