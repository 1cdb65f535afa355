"""Training on several nodes, each a namespace of this machine: the same weights, and faults that a run survives.

`make proof` only. Outcomes are asserted, not times; a node is killed when the run has said that it is in the middle.
"""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")

from tests.cluster.namespaces import NamespaceCluster, namespaces_work
from tests.cluster.training import WORLDS, digest, train_in
from tests.waiting import gone, wait_until

pytestmark = [
    pytest.mark.proof,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not namespaces_work(), reason="needs root, iproute2 and network namespaces"),
]
PROGRAM = [sys.executable, "-m", "tests.cluster.training"]
ON_CLUSTER = ["backend=ray", "address=auto"]
LONG = 16 * 32 * 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[NamespaceCluster]:
    """Yield a cluster with two nodes of two CPUs each."""
    made = NamespaceCluster(2, cpus=2)
    yield made
    made.close()


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Any:
    known: dict[tuple[str, str], str] = {}

    def look_up(world: str, schedule: str) -> str:
        if (world, schedule) not in known:
            folder = tmp_path_factory.mktemp("reference") / "run"
            known[world, schedule] = train_in(folder, world, schedule=schedule, backend="processes", workers=2)
        return known[world, schedule]

    return look_up


@pytest.fixture
def fresh() -> Iterator[NamespaceCluster]:
    """Yield a cluster that the test may break: two nodes with CPUs for two hosts each."""
    made = NamespaceCluster(2, cpus=2)
    yield made
    made.close()


@pytest.mark.parametrize(("world", "schedule"), list(itertools.product(WORLDS, ["sync", "overlap"])))
def test_two_nodes_give_the_weights_of_one_machine(
    world: str, schedule: str, cluster: NamespaceCluster, reference: Any, tmp_path: Path
) -> None:
    said = cluster.run(0, [*PROGRAM, str(tmp_path / "run"), *ON_CLUSTER, f"world={world}", f"schedule={schedule}"])
    assert f"weights {reference(world, schedule)}" in said


def test_central_acting_gives_the_same_weights(cluster: NamespaceCluster, reference: Any, tmp_path: Path) -> None:
    said = cluster.run(0, [*PROGRAM, str(tmp_path / "run"), *ON_CLUSTER, "acting=central"])
    assert f"weights {reference('ppo', 'sync')}" in said


def until_update(process: subprocess.Popen[str], count: int) -> None:
    """Read the program's output until it has made some updates."""
    assert process.stdout is not None
    for _ in range(count):
        line = process.stdout.readline()
        assert line.startswith("update"), line + (process.stderr.read() if process.stderr else "")


@pytest.mark.parametrize("schedule", ["sync", "overlap"])
@pytest.mark.parametrize("fault", ["kill", "cut"])
@pytest.mark.parametrize("workers", [2, 4], ids=["a spare node", "no spare node"])
def test_a_node_that_is_lost(fault: str, schedule: str, workers: int, fresh: NamespaceCluster, tmp_path: Path) -> None:
    """With 2 workers the other node has a free CPU for a new host; with 4, its host takes the workers too."""
    command = [*PROGRAM, str(tmp_path / "run"), *ON_CLUSTER, f"schedule={schedule}", f"workers={workers}"]
    with fresh.popen(0, [*command, f"steps={LONG}"]) as process:
        until_update(process, 3)
        fresh.kill(1) if fault == "kill" else fresh.cut(1)
        said, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors[-3000:]
    assert f"update at step {LONG}," in said
    assert f"the workers of node {fresh.address(1)} continue on node {fresh.address(2)}" in errors
    if fault == "cut":
        assert f"node {fresh.address(1)} has not answered" in errors


def test_a_healed_node_changes_nothing(fresh: NamespaceCluster, tmp_path: Path) -> None:
    """The old host is fenced: its late reports are ignored, and it ends."""
    command = [*PROGRAM, str(tmp_path / "run"), *ON_CLUSTER, "workers=2", f"steps={LONG}"]
    with fresh.popen(0, command) as process:
        until_update(process, 3)
        fresh.cut(1)
        until_update(process, 3)
        fresh.heal(1)
        _, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors[-3000:]
    fresh.wait_for(lambda: not fresh.processes(1, "envfleet-"))


def test_a_killed_driver_leaves_nothing_and_resumes_elsewhere(
    fresh: NamespaceCluster, reference: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    command = [*PROGRAM, str(folder), *ON_CLUSTER, "schedule=overlap", "checkpoint_every=1", "keep_checkpoints=2"]
    with fresh.popen(0, command) as process:
        until_update(process, 2)
        workers = [pid for node in (1, 2) for pid in fresh.processes(node, "envfleet-")]
        assert len(workers) == 6  # on each node two, and the server that forks them
        (driver,) = fresh.processes(0, "tests.cluster.training")
        process.send_signal(signal.SIGKILL)
        subprocess.run(["kill", "-9", str(driver)], check=False)
    assert wait_until(lambda: gone(workers))
    fresh.run(0, [*PROGRAM, str(folder), *ON_CLUSTER, "resume=1"])
    assert digest(folder) == reference("ppo", "overlap")
    recorded = (folder / "config.yaml").read_text() + (folder / "manifest.json").read_text()
    assert "address=auto" not in recorded and fresh.address(1) not in recorded and "token" not in recorded


def test_too_many_workers(cluster: NamespaceCluster, tmp_path: Path) -> None:
    with cluster.popen(0, [*PROGRAM, str(tmp_path / "run"), *ON_CLUSTER, "workers=9", "group_size=1"]) as process:
        _, errors = process.communicate(timeout=200)
    assert "9 workers were asked for, but the cluster has 4 CPUs" in errors
    assert "hint: use --workers 4, or add nodes" in errors
