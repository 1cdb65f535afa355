"""Hosts on a Ray cluster, without a cluster: what happens when they are lost, and what is remembered of them."""

from __future__ import annotations

import concurrent.futures
import functools
import logging
import queue
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("ray")

from envfleet.errors import SettingsError, WorkerError
from envfleet.fleet.backends import ray_hosts, ray_link, ray_nodes
from envfleet.fleet.backends.link import HostLost
from envfleet.fleet.backends.ray_cluster import ActorDiedError, RayError
from envfleet.fleet.backends.ray_hosts import FORGIVE_SECONDS, RayHosts
from envfleet.fleet.backends.ray_link import SILENCE_BEATS, RayLink
from envfleet.fleet.backends.ray_nodes import NodeWatch
from envfleet.fleet.channel import ChannelClosed
from envfleet.fleet.cluster import ClusterSettings, HostFacts, Node
from envfleet.fleet.worker import Hello

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
        self.place: int | None = None
        self.torch = ""

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


def test_without_a_spare_node_the_workers_of_a_lost_host_are_shared_out(
    hosts: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By load; a host on a node that is being drained gets none, whatever the order in which hosts were started."""
    lost: Any = object.__new__(RayLink)
    lost.node, lost.lost = Node("c", "10.0.0.3", 2, 0), "it is gone"
    first, second = hosts._links
    second.cpus = 4
    drained = FakeLink(Node("d", "10.0.0.4", 8, 0))
    drained.cpus, drained.drained = 8, True
    workers = {id(first): [4, 5], id(second): [0, 1, 2, 3], id(drained): [6]}
    hosts._backend.workers_of = lambda link: workers[id(link)]
    hosts._watch.forget = lambda workers: None
    monkeypatch.setattr(ray_hosts, "live_nodes", lambda: [replace(node, free=0) for node in NODES])
    for links in ([first, second, drained], [drained, second, first]):
        hosts._links = links
        with caplog.at_level(logging.WARNING, "envfleet"):
            found = hosts.replacements(lost, [7, 8, 9])
        assert found == {7: second, 8: second, 9: first}
    assert "the workers of node 10.0.0.3 continue on node 10.0.0.2 and node 10.0.0.1 too" in caplog.text


def test_a_spare_node_gets_all_workers_of_a_lost_host(hosts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lost: Any = object.__new__(RayLink)
    lost.node, lost.lost = NODES[0], "it is gone"
    spare = Node("e", "10.0.0.5", 4, 4)
    hosts._watch.forget = lambda workers: None
    hosts.start_host = lambda node, cpus: (node, cpus)
    monkeypatch.setattr(ray_hosts, "live_nodes", lambda: [spare])
    assert hosts.replacements(lost, [0, 1]) == {0: (spare, 2), 1: (spare, 2)}


def fleet_with_torch(hosts: Any, monkeypatch: pytest.MonkeyPatch, numerics: str, ours: str) -> list[Any]:
    """Return the links of hosts: both are the first ones of a fleet."""
    links: list[Any] = [object.__new__(RayLink) for _ in NODES]
    for place, (link, node) in enumerate(zip(links, NODES, strict=True)):
        link.__dict__.update(FakeLink(node).__dict__, place=place)
        link.abandon = functools.partial(setattr, link, "lost")
    facts = HostFacts.of_this_process()
    facts = replace(facts, numerics=replace(facts.numerics, torch=""))
    hosts._links, hosts._settings, hosts._torch = links, ClusterSettings(numerics=numerics), ""
    hosts.facts = [(node.name, facts) for node in NODES]
    monkeypatch.setattr(ray_hosts, "measure_torch", lambda: ours)
    return links


def test_a_host_whose_torch_computes_differently(
    hosts: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = fleet_with_torch(hosts, monkeypatch, "warn", "ours")
    with caplog.at_level(logging.WARNING, "envfleet"):
        hosts.approve(first, Hello([], "ours"))
        hosts.approve(second, Hello([]))  # a worker that only steps
        assert not caplog.text
        hosts.approve(second, Hello([], "other"))
        hosts.approve(second, Hello([], "other"))  # another worker of the host
    assert caplog.text.count("node 10.0.0.2 computes differently in torch than this machine") == 1
    assert [facts.numerics.torch for _, facts in hosts.facts] == ["ours", "other"]  # for the manifest


def test_strict_numerics_refuse_a_host_whose_torch_differs(hosts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = fleet_with_torch(hosts, monkeypatch, "strict", "ours")
    hosts.approve(first, Hello([], "ours"))
    with pytest.raises(SettingsError, match=r"node 10\.0\.0\.2 computes differently in torch .*\nhint: --numerics"):
        hosts.approve(second, Hello([], "other"))
    assert second.lost is None


def test_strict_numerics_give_up_a_later_host_whose_torch_differs(hosts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run does not end: its workers start elsewhere, and its node is not chosen again."""
    first, second = fleet_with_torch(hosts, monkeypatch, "strict", "ours")
    hosts.approve(first, Hello([], "ours"))
    second.place = None
    with pytest.raises(ChannelClosed, match="computes differently in torch"):
        hosts.approve(second, Hello([], "other"))
    assert hosts._backend.lost == [second] and usable(hosts) == ["a"]


def test_pinned_kernels_are_compared_among_hosts(
    hosts: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = fleet_with_torch(hosts, monkeypatch, "portable", "ours")
    with caplog.at_level(logging.WARNING, "envfleet"):
        hosts.approve(first, Hello([], "pinned"))
        assert not caplog.text
        hosts.approve(second, Hello([], "other"))
    assert "node 10.0.0.2 computes differently in torch than the first node" in caplog.text


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


def test_an_error_of_the_thread_that_looks_at_nodes_ends_the_run(hosts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    watch: Any = object.__new__(NodeWatch)
    watch._hosts, watch._closed, watch._missed = hosts, threading.Event(), 0
    monkeypatch.setattr(ray_nodes, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(ray_nodes, "live_nodes", lambda: NODES)
    monkeypatch.setattr(ray_nodes, "draining_nodes", dict)
    known: dict[str, Node] = {}
    monkeypatch.setattr(watch, "_look", lambda nodes, drained: known["no such node"])
    watch._run()
    assert hosts._ended == "the nodes of the cluster could not be watched: KeyError: 'no such node'"
    assert hosts._backend.lost == hosts._links


@pytest.mark.parametrize("error", [TimeoutError(), RuntimeError("dictionary changed size during iteration")])
def test_a_host_where_nothing_could_be_prepared_is_given_up(
    error: Exception, hosts: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def prepare(workers: Any, link: Any, seconds: float) -> Any:
        raise error

    watch: Any = object.__new__(NodeWatch)
    watch._hosts, watch._closed, watch._ready = hosts, threading.Event(), {}
    watch._backend = SimpleNamespace(prepare=prepare)
    hosts.start_host = lambda node, cpus: hosts._links[1]
    with caplog.at_level(logging.WARNING, "envfleet"):
        watch._prepare([0], NODES[1])
    assert hosts._backend.lost == [hosts._links[1]] and not watch._ready
    said = "they cannot be built there" if isinstance(error, TimeoutError) else "RuntimeError: dictionary changed"
    assert f"1 worker cannot move to node 10.0.0.2: {said}" in caplog.text


def silent_link(hosts: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[concurrent.futures.Future[Any]]]:
    """Return a host that was heard long ago, and the answers that it has been asked for."""
    asked: list[concurrent.futures.Future[Any]] = []

    def remote() -> Any:
        asked.append(concurrent.futures.Future())
        return SimpleNamespace(future=lambda: asked[-1])

    link: Any = object.__new__(RayLink)
    link.__dict__.update(FakeLink(NODES[0]).__dict__, _hosts=hosts, _asked=False, heard=-1e6)
    link._actor = SimpleNamespace(beat=SimpleNamespace(options=lambda **group: SimpleNamespace(remote=remote)))
    link.abandon = lambda reason: setattr(link, "lost", reason)
    monkeypatch.setattr(ray_link, "ray", SimpleNamespace(is_initialized=lambda: True))
    return link, asked


def test_a_host_is_lost_after_some_beats_without_an_answer(hosts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    link, asked = silent_link(hosts, monkeypatch)
    for _ in range(SILENCE_BEATS):  # the first one asks
        link.beat()
    assert link.lost is None and len(asked) == 1
    link.beat()
    assert link.lost == "node 10.0.0.1 has not answered for 8 s"


def test_an_answer_counts_when_it_arrives(hosts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that handles answers may be busy with reports, or the process may have been stopped."""
    link, asked = silent_link(hosts, monkeypatch)
    for _ in range(3 * SILENCE_BEATS):
        link.beat()
        asked[-1].set_result([])
    assert link.lost is None and hosts._events.qsize() == len(asked) == 3 * SILENCE_BEATS


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("because its node has died", r"^node 10\.0\.0\.1 is lost \(ActorDiedError\)$"),
        (
            "raised in its creation task, No module named 'envfleet'",
            r"^node 10\.0\.0\.1 could not start a host: .*\nhint: envfleet must be installed",
        ),
    ],
)
def test_a_host_that_does_not_start_names_its_node_once(hosts: Any, text: str, words: str) -> None:
    link: Any = object.__new__(RayLink)
    error = ActorDiedError()
    error.error_msg = text
    failed: concurrent.futures.Future[Any] = concurrent.futures.Future()
    failed.set_exception(error)
    link.__dict__.update(FakeLink(NODES[0]).__dict__, _hosts=hosts, heard=None)
    link._facts = SimpleNamespace(future=lambda: failed)
    with pytest.raises(WorkerError, match=words):
        link.facts()


def test_the_first_host_of_a_worker_is_not_kept(hosts: Any) -> None:
    hosts._of_worker = {0: hosts._links[0]}
    assert hosts.host_of(0) is hosts._links[0]
    assert not hosts._of_worker


def test_rollouts_travel_within_messages() -> None:
    """Ray has two limits, and the smaller one counts."""
    variables = ray_hosts._runtime_env(ClusterSettings())["env_vars"]
    for name in ("RAY_max_direct_call_object_size", "RAY_task_rpc_inlined_bytes_limit"):
        assert variables[name] == str(16 * 2**20)


def test_a_runtime_environment_that_ray_refuses(tmp_path: Path) -> None:
    """This is found before a cluster is started."""
    file = tmp_path / "env.yaml"
    file.write_text("pip: [a]\nconda: b\n")
    with pytest.raises(SettingsError, match=r"runtime_env: Ray refuses .*env\.yaml: "):
        RayHosts(1, ClusterSettings(runtime_env=str(file)))
