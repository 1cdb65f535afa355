"""Training on several nodes, each a namespace of this machine: the same weights, and faults that a run survives.

`make proof` only. Outcomes are asserted, not times; a node is killed when the run has said that it is in the middle.
"""

from __future__ import annotations

import itertools
import re
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import pytest

pytest.importorskip("ray")

from tests.cluster.namespaces import NET, NamespaceCluster, namespaces_work
from tests.cluster.training import ON_CLUSTER, PROGRAM, WORLDS, digest
from tests.waiting import gone, wait_until

pytestmark = [
    pytest.mark.proof,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not namespaces_work(), reason="needs root, iproute2 and network namespaces"),
]
LONG = 16 * 32 * 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[NamespaceCluster]:
    """Yield a cluster with two nodes of two CPUs each."""
    with NamespaceCluster(2, cpus=2) as made:
        yield made


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


def refusal(cluster: NamespaceCluster, folder: Path, *settings: str, command: Sequence[str] = ()) -> str:
    """Return the error of a run that cannot start."""
    with cluster.popen(0, [*command, *PROGRAM, str(folder), *ON_CLUSTER, *settings]) as process:
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 1 and "Traceback" not in errors
    return errors


def test_too_many_workers(cluster: NamespaceCluster, tmp_path: Path) -> None:
    said = refusal(cluster, tmp_path / "run", "workers=9", "group_size=1")
    assert "error: 9 workers were asked for, but the cluster has 4 CPUs" in said
    assert "hint: use --workers 4, or add nodes" in said


@pytest.fixture
def tidy(cluster: NamespaceCluster) -> Iterator[NamespaceCluster]:
    """Yield the cluster; packages of single nodes are removed afterwards."""
    yield cluster
    for node in range(3):
        cluster.uninstall(node)


def test_a_node_with_another_version(tidy: NamespaceCluster, tmp_path: Path) -> None:
    tidy.install(2, "gymnasium-0.1.dist-info/METADATA", "Metadata-Version: 2.1\nName: gymnasium\nVersion: 0.1\n")
    said = refusal(tidy, tmp_path / "run")
    assert f"error: node {tidy.address(2)} has gymnasium 0.1, expected {gymnasium.__version__} as on this" in said
    assert "hint: install the same versions on every node: pip install gymnasium==" in said


def test_a_module_that_the_nodes_do_not_have(tidy: NamespaceCluster, tmp_path: Path) -> None:
    tidy.install(0, "only_here.py", "import gymnasium\ndef make(): return gymnasium.make('CartPole-v1')\n")
    said = refusal(tidy, tmp_path / "run", "env=only_here:make")
    assert re.search(rf"error: node {NET}\.1[12]: .*No module named 'only_here'\nhint: ", said), said
    assert "hint: install what is missing on every node, or describe it in a file for --runtime-env" in said


def test_a_wrong_token(cluster: NamespaceCluster, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0" * 64)
    token.chmod(0o600)
    said = refusal(cluster, tmp_path / "run", command=["env", f"RAY_AUTH_TOKEN_PATH={token}"])
    assert "error: the cluster at address 'auto' refused the connection: the token is missing or wrong\nhint:" in said


@pytest.fixture(scope="module")
def four() -> Iterator[NamespaceCluster]:
    """Yield a cluster with four nodes of one CPU each."""
    with NamespaceCluster(4, cpus=1) as made:
        yield made


@pytest.mark.parametrize(("world", "schedule"), list(itertools.product(WORLDS, ["sync", "overlap"])))
def test_four_nodes_give_the_weights_of_one_machine(
    world: str, schedule: str, four: NamespaceCluster, reference: Any, tmp_path: Path
) -> None:
    said = four.run(0, [*PROGRAM, str(tmp_path / "run"), *ON_CLUSTER, f"world={world}", f"schedule={schedule}"])
    assert f"weights {reference(world, schedule)}" in said
