"""Looks at the nodes of a Ray cluster: finds better places for workers, and notices a lost head.

A worker has a better place if it shares a CPU and another node has a free one (it has just joined, or came back), or if
its node is being drained. A host is started there, and the worker's environments are built, while the worker still
steps in its old place. It moves between two rollouts (`fleet/relocation.py`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from envfleet.errors import EnvfleetError
from envfleet.fleet.backends.link import HostLost
from envfleet.fleet.backends.ray_cluster import RayError, draining_nodes, head_of, live_nodes, ray
from envfleet.fleet.backends.ray_link import START_SECONDS, RayLink, words_of
from envfleet.fleet.backends.remote import RemoteBackend
from envfleet.fleet.channel import ChannelClosed
from envfleet.fleet.cluster import HostLoad, Node, next_move
from envfleet.wording import counted

if TYPE_CHECKING:
    from envfleet.fleet.backends.ray_hosts import RayHosts

__all__ = ["HEAD_BEATS", "NodeWatch"]

_log = logging.getLogger("envfleet")

LOOK_SECONDS = 2.0
HEAD_BEATS = 30  # seconds; counted as beats, because this process may have been stopped. Ray ends it after 60 s


class NodeWatch:
    """Looks at the nodes every few seconds, in a thread."""

    def __init__(self, hosts: RayHosts, backend: RemoteBackend) -> None:
        self._hosts, self._backend = hosts, backend
        self._missed = 0  # beats since the head answered
        self.head = f"the head of the cluster ({head_of()})"
        self._known = {node.id for node in live_nodes()}
        self._ready: dict[int, tuple[RayLink, int]] = {}  # better places, and the processes there
        self._preparing: threading.Thread | None = None
        self._left: list[RayLink] = []  # hosts that a worker has left
        self._asked = False  # the caller asks for moves; one that steps by itself does not
        self._inexact = False  # environments cannot be moved: only nodes that are being drained matter
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="envfleet-ray-nodes", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop looking; a thread that waits for a lost head ends with this process."""
        self._closed.set()
        self._thread.join(2 * LOOK_SECONDS)

    def _run(self) -> None:
        try:
            self._look_regularly()
        except BaseException as error:
            _log.error("the thread that looks at the nodes has failed", exc_info=True)
            if not self._closed.is_set():
                self._hosts.end(f"the nodes of the cluster could not be watched: {type(error).__name__}: {error}")

    def _look_regularly(self) -> None:
        while not self._closed.wait(LOOK_SECONDS):
            try:
                nodes, drained = live_nodes(), draining_nodes()  # they wait for a head that does not answer
            except (RayError, RuntimeError, ConnectionError):
                continue
            self._missed = 0
            self._look(nodes, drained)

    def head_is_lost(self) -> bool:
        """Whether the head has not answered for `HEAD_BEATS` calls of this function."""
        self._missed += self._thread.is_alive() and ray.is_initialized()
        return self._missed > HEAD_BEATS

    def _look(self, nodes: Sequence[Node], drained: dict[str, float | None]) -> None:
        hosts = self._hosts.hosts()
        for link, workers in hosts:
            if link.node.id in drained and not link.drained:
                link.drained = True
                left = drained[link.node.id]
                when = "soon" if left is None else f"in {left:.0f} s"
                _log.warning(
                    "node %s is being drained and will stop %s; %s will leave it (start a new node to keep the speed)",
                    link.node.name,
                    when,
                    counted(len(workers), "worker"),
                )
        for worker, (link, _) in list(self._ready.items()):
            if not self._is_better(worker, link):
                self._ready.pop(worker, None)
        if not self._asked or self._ready or (self._preparing is not None and self._preparing.is_alive()):
            return
        while self._left:
            link = self._left.pop()
            if link.lost is None and not self._backend.workers_of(link):
                link.abandon("all of its workers have left")
        loads = [HostLoad(link.node.id, 0 if link.drained else link.cpus, workers) for link, workers in hosts]
        if self._inexact:
            loads = [load for load in loads if load.cpus == 0]
        usable = self._hosts.usable(nodes)
        move = next_move(loads, usable)
        if move is not None:
            self._preparing = threading.Thread(target=self._prepare, args=move, name="envfleet-ray-move", daemon=True)
            self._preparing.start()
        for node in usable:
            if node.id not in self._known and node.free > 0 and move is None:
                _log.warning(
                    "node %s has joined the cluster; it is a spare for lost nodes, since every worker has a CPU (more "
                    "workers: envfleet resume RUN --workers N)",
                    node.name,
                )
        self._known.update(node.id for node in nodes)

    def _prepare(self, workers: Sequence[int], node: Node | None) -> None:
        """Build the environments of some workers on a node, or on one of the other hosts."""
        try:
            link = self._hosts.least_loaded() if node is None else self._hosts.start_host(node, len(workers))
            if link is None:
                return  # they stay until their node stops
            try:
                pids = self._backend.prepare(workers, link, START_SECONDS)
            except Exception:
                if node is not None:
                    self._hosts.lose(link, "environments could not be built there")
                raise
        except Exception as error:  # whatever it is, the workers can stay
            if self._closed.is_set():
                return
            where = "" if node is None else f" to node {node.name}"
            text = words_of(error) if isinstance(error, EnvfleetError) else str(error) or "they cannot be built there"
            if not isinstance(error, EnvfleetError | HostLost | ChannelClosed | TimeoutError):
                text = f"{type(error).__name__}: {error}"
            _log.warning("%s cannot move%s: %s", counted(len(workers), "worker"), where, text)
        else:
            self._ready = {worker: (link, pid) for worker, pid in pids.items()}
            moving = "1 worker moves" if len(workers) == 1 else f"{len(workers)} workers move"
            _log.warning("%s to node %s with the next rollout", moving, link.node.name)

    # --- for the thread of the caller

    def moves(self) -> list[int]:
        self._asked = True
        return [worker for worker, (link, _) in list(self._ready.items()) if self._is_better(worker, link)]

    def _is_better(self, worker: int, link: RayLink) -> bool:
        """Whether a host is still there for a worker, which may have been restarted on this very host since."""
        return link.lost is None and worker not in self._backend.workers_of(link)

    def better_place(self, worker: int) -> tuple[RayLink, int]:
        place = self._ready.pop(worker, None)
        if place is None:  # its host was lost a moment ago
            raise ChannelClosed
        self._left += [link for link, workers in self._hosts.hosts() if worker in workers]
        return place

    def stay(self, worker: int, reason: str) -> None:
        """Leave a worker where it is; if its node is being drained, its host counts as lost."""
        link, _ = self._ready.get(worker, (None, 0))
        if link is None:
            return
        self.forget([worker])
        (source,) = [source for source, workers in self._hosts.hosts() if worker in workers] or (None,)
        if source is not None and source.drained:
            self._hosts.lose(source, f"node {source.node.name} is being drained")
        elif source is not None and not self._inexact:
            self._inexact = True
            _log.warning(
                "node %s stays unused, because the environments cannot continue their episodes there: %s (get_state() "
                "and set_state() make them movable)",
                link.node.name,
                reason,
            )

    def forget(self, workers: Iterable[int]) -> None:
        """Give up the better places of these workers."""
        for worker in workers:
            link, _ = self._ready.pop(worker, (None, 0))
            if link is not None:
                self._left.append(link)
                try:
                    link.call("kill", worker)
                except HostLost:
                    continue
