"""Connecting to a Ray cluster, without one: what is found out before Ray is asked, and what a failure says."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("ray")

from envfleet import cli
from envfleet.errors import EnvfleetError, ResourceError, SettingsError
from envfleet.fleet.backends import ray_cluster
from envfleet.fleet.backends.ray_cluster import connect
from envfleet.fleet.cluster import ClusterSettings


class FakeNode:
    """A node of Ray that fails to start."""

    killed = 0

    def start(self, failure: Exception) -> None:
        raise failure

    def kill_all_processes(self, **how: Any) -> None:
        assert not how["check_alive"] and how["wait"]
        FakeNode.killed += 1


class FakeRay:
    """Takes the place of `ray.init`: notes the addresses, and fails as often as it is told."""

    def __init__(self, *failures: Exception) -> None:
        self.addresses: list[str] = []
        self.failures = list(failures)

    def __call__(self, address: str, **settings: Any) -> None:
        self.addresses.append(address)
        if self.failures:
            FakeNode().start(self.failures.pop(0))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    made = FakeRay()
    monkeypatch.setattr(ray_cluster.ray, "init", made)
    monkeypatch.setattr(ray_cluster.ray, "shutdown", lambda: None)
    monkeypatch.setattr("ray._private.node.Node", FakeNode)
    monkeypatch.setattr(FakeNode, "killed", 0)
    monkeypatch.setattr(ray_cluster.ray, "is_initialized", lambda: False)
    for name in (*ray_cluster.INLINE_LIMITS, "RAY_USAGE_STATS_ENABLED"):
        monkeypatch.setenv(name, "0")  # `connect` sets them unless they are set
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return made


@pytest.fixture
def silent() -> Iterator[int]:
    """Yield a port that is taken, and at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.fixture
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_nobody_listens_at_the_address(fake: FakeRay, silent: int) -> None:
    with pytest.raises(SettingsError, match=rf"nobody listens at 127\.0\.0\.1:{silent}, .*\nhint: .*--port={silent}"):
        connect(ClusterSettings(f"127.0.0.1:{silent}"))
    assert not fake.addresses


def test_the_doctor_says_that_nobody_listens(fake: FakeRay, silent: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "--address", f"127.0.0.1:{silent}"]) == 1
    assert f"nobody listens at 127.0.0.1:{silent}" in " ".join(capsys.readouterr().out.split())


def test_a_variable_that_names_a_cluster_that_is_gone(
    fake: FakeRay, silent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{silent}")
    with pytest.raises(SettingsError, match=rf":{silent} \(found by address 'auto'\), expected the head"):
        connect(ClusterSettings("auto"))
    assert not fake.addresses


def test_somebody_listens(fake: FakeRay, listening: int) -> None:
    connect(ClusterSettings(f"127.0.0.1:{listening}"))
    assert fake.addresses == [f"127.0.0.1:{listening}"]


@pytest.mark.parametrize("address", ["local", "host", "unix:/tmp/socket", "redis://127.0.0.1:1", "a:99999"])
def test_ray_judges_addresses_of_other_forms(address: str, fake: FakeRay) -> None:
    connect(ClusterSettings(address))
    assert fake.addresses == [address]


def test_the_head_of_an_address() -> None:
    assert ray_cluster._head_at("[::1]:6379") == ("::1", 6379)
    assert ray_cluster._head_at("head.example:6379") == ("head.example", 6379)


def test_a_host_without_an_address(fake: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*arguments: Any) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "create_connection", unknown)
    with pytest.raises(EnvfleetError, match=r"nobody listens at no-such-host:6379, .*: .*Name or service not known"):
        connect(ClusterSettings("no-such-host:6379"))


TOO_LATE = "The current node timed out during startup. This could happen because the GCS has become overloaded."


def test_a_local_cluster_that_starts_too_slowly_is_started_again(
    fake: FakeRay, caplog: pytest.LogCaptureFixture
) -> None:
    fake.failures = [Exception(TOO_LATE)]
    with caplog.at_level(logging.WARNING, "envfleet"):
        connect(ClusterSettings(), 2)
    assert fake.addresses == ["local", "local"]
    assert FakeNode.killed == 1, "the processes of the first attempt are still running"
    assert "started once more" in caplog.text


def test_a_local_cluster_that_never_starts(fake: FakeRay) -> None:
    fake.failures = [Exception(TOO_LATE), Exception(TOO_LATE), Exception("a third attempt")]
    with pytest.raises(ResourceError, match=r"could not be started: The current node timed out .*\nhint: .*too busy"):
        connect(ClusterSettings(), 2)
    assert len(fake.addresses) == FakeNode.killed == 2


def test_another_failure_is_not_tried_again(fake: FakeRay) -> None:
    fake.failures = [OSError("validate_socket_filename failed: AF_UNIX path length cannot exceed 107 bytes")]
    with pytest.raises(ResourceError, match=r"path length .*\nhint: set RAY_TMPDIR"):
        connect(ClusterSettings(), 2)
    assert len(fake.addresses) == FakeNode.killed == 1
