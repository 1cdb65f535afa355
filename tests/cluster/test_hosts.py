"""Hosts on a Ray cluster, without a cluster: what happens when they are lost, and what is remembered of them."""

from __future__ import annotations

import concurrent.futures
import logging
import queue
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("ray")

from envfleet.errors import SettingsError
from envfleet.fleet.backends import ray_hosts
from envfleet.fleet.backends.link import HostLost
from envfleet.fleet.backends.ray_cluster import ActorDiedError, RayError
from envfleet.fleet.backends.ray_hosts import FORGIVE_SECONDS, RayHosts
from envfleet.fleet.backends.ray_link import RayLink
from envfleet.fleet.backends.ray_nodes import NodeWatch
from envfleet.fleet.channel import ChannelClosed
from envfleet.fleet.cluster import ClusterSettings, Node

NODES = [Node("a", "10.0.0.1", 2, 2), Node("b", "10.0.0.2", 2, 2)]


class FakeBackend:
    def __init__(self) -> None:
        self.lost: list[Any] = []

    def workers_of(self, link: Any) -> list[int]:
        return [0]

    def lose(self, link: Any, reason: str) -> None:
        self.lost.append(link)


class FakeLink:
    """A host that does nothing."""

    def __init__(self, node: Node) -> None:
        self.node, self.cpus, self.drained = node, 2, False
        self.lost: str | None = None
        self.heard: float | None = 0.0
        self.started = 0.0

    def beat(self) -> None:
        """Nothing is asked."""

    def stop(self) -> None:
        """Nothing runs."""

    def abandon(self, reason: str) -> None:
        self.lost = reason


@pytest.fixture
def hosts() -> Any:
    """Hosts on both nodes, without threads."""
    made: Any = object.__new__(RayHosts)
    made._backend, made._closed, made._ended = FakeBackend(), threading.Event(), None
    made._events, made._suspects = queue.SimpleQueue(), {}
    made._links = [FakeLink(node) for node in NODES]
    made._watch = SimpleNamespace(head_is_lost=lambda: False)
    return made


def usable(hosts: Any) -> list[str]:
    return [node.id for node in hosts.usable(NODES)]


def test_an_error_of_the_thread_ends_the_run(hosts: Any, caplog: pytest.LogCaptureFixture) -> None:
    failed: concurrent.futures.Future[Any] = concurrent.futures.Future()
    failed.set_exception(KeyError("no such worker"))
    links = list(hosts._links)
    hosts._events.put((links[0], failed))
    with caplog.at_level(logging.WARNING, "envfleet"):
        hosts._run()
    assert hosts._ended == "reports of the hosts could not be handled: KeyError: 'no such worker'"
    assert hosts._backend.lost == links
    assert "the run ends" in caplog.text


def test_lost_hosts_are_forgotten(hosts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_hosts, "BEAT_SECONDS", 0.0)
    gone, alive = hosts._links
    gone.lost = "it is gone"
    alive.beat = hosts._closed.set  # ends the loop
    hosts._receive()
    assert hosts._links == [alive]


def test_a_silent_node_is_forgiven_after_a_while(hosts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(ray_hosts, "time", SimpleNamespace(monotonic=lambda: now))
    silent, broken = hosts._links
    hosts.lose(silent, "it does not answer", silent=True)
    hosts.lose(broken, "environments could not be built there")
    now += FORGIVE_SECONDS - 1.0
    assert usable(hosts) == []
    now += 1.0
    assert usable(hosts) == ["a"]
    now += 3600.0
    assert usable(hosts) == ["a"]


@pytest.mark.parametrize(("error", "suspected"), [(RayError("no route"), True), (ActorDiedError(), False)])
def test_a_call_that_fails_loses_the_host(hosts: Any, error: RayError, suspected: bool) -> None:
    """Before the thread hears of it: the host must not be chosen for other workers."""
    link: Any = object.__new__(RayLink)
    link.__dict__.update(FakeLink(NODES[0]).__dict__, _hosts=hosts)
    link.abandon = lambda reason: setattr(link, "lost", reason)
    hosts._links[0] = link
    failed: concurrent.futures.Future[Any] = concurrent.futures.Future()
    failed.set_exception(error)
    with pytest.raises(HostLost, match=r"node 10\.0\.0\.1"):
        link._result(failed)
    assert link.lost is not None and hosts._backend.lost == [link]
    assert hosts.least_loaded() is hosts._links[1]
    assert ("a" not in usable(hosts)) == suspected


def test_a_better_place_that_was_lost() -> None:
    watch: Any = object.__new__(NodeWatch)
    watch._ready, watch._left, watch._hosts = {}, [], SimpleNamespace(hosts=list)
    with pytest.raises(ChannelClosed):
        watch.better_place(0)
    watch.stay(0, "its simulator is behind a handle")
    watch.forget([0])


def test_a_better_place_where_the_worker_was_restarted() -> None:
    """Its old host was lost, and the host that was prepared for it has replaced that one."""
    watch: Any = object.__new__(NodeWatch)
    here, there = FakeLink(NODES[0]), FakeLink(NODES[1])
    watch._backend = SimpleNamespace(workers_of=lambda link: [0] if link is here else [1])
    watch._ready, watch._asked = {0: (here, 10), 1: (here, 11)}, False
    assert watch.moves() == [1]
    watch._hosts = SimpleNamespace(hosts=lambda: [(here, [0]), (there, [1])])
    watch._look(NODES, {})
    assert list(watch._ready) == [1]


def test_a_runtime_environment_that_ray_refuses(tmp_path: Path) -> None:
    """This is found before a cluster is started."""
    file = tmp_path / "env.yaml"
    file.write_text("pip: [a]\nconda: b\n")
    with pytest.raises(SettingsError, match=r"runtime_env: Ray refuses .*env\.yaml: "):
        RayHosts(1, ClusterSettings(runtime_env=str(file)))
