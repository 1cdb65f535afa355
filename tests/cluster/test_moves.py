"""Nodes that join, return, are drained or run out of memory during a run, and a lost head.

`make proof` only. Each node is a namespace of this machine. Outcomes are asserted, not times: the run is held between
two updates until it has said that it noticed.
"""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")

from envfleet.training import resume
from tests.cluster.namespaces import NamespaceCluster, namespaces_work
from tests.cluster.training import ON_CLUSTER, PROGRAM, digest

pytestmark = [
    pytest.mark.proof,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not namespaces_work(), reason="needs root, iproute2 and network namespaces"),
]


class HeldRun:
    """A training on a node of a cluster that waits after some updates."""

    def __init__(self, cluster: NamespaceCluster, folder: Path, *settings: str, node: int = 0) -> None:
        command = [*PROGRAM, str(folder), *ON_CLUSTER, *settings]
        self._process = cluster.popen(node, command, stdin=subprocess.PIPE)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        self.said = ""  # its messages
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.said += line

    def until_update(self, count: int) -> None:
        """Read its output until it has made this many updates; Ray writes there too."""
        while count:
            line = self._out.readline()
            assert line, self.rest() + self.said
            count -= line.startswith("update")

    def until(self, text: str, times: int = 1) -> None:
        """Wait until this text has come a number of times among its messages."""
        while self.said.count(text) < times:
            assert self._process.poll() is None, self.said
            time.sleep(0.05)

    def go_on(self) -> None:
        self._in.write("\n")
        self._in.flush()

    def rest(self) -> str:
        """Let it end, and return the rest of its output."""
        with self._process:  # closes the pipes
            self._in.close()
            out = self._out.read()
            self._reader.join()
        return out

    @property
    def code(self) -> int:
        return self._process.wait()


@pytest.fixture
def growing() -> Iterator[NamespaceCluster]:
    """Yield a cluster with one node of two CPUs, to which a second can be added."""
    with NamespaceCluster(1, cpus=2, later=1) as made:
        yield made


def workers_on(cluster: NamespaceCluster, node: int) -> int:
    """Return the number of worker processes of a node; one more process forks them."""
    return max(0, len(cluster.processes(node, "envfleet-")) - 1)


def add_node(cluster: NamespaceCluster, node: int, run: HeldRun) -> None:
    """Start a node during a run, and let the run continue until two of its four workers are there."""
    cluster.start(node)
    run.until(f"2 workers move to node {cluster.address(node)}")
    run.go_on()
    run.until_update(2)
    cluster.wait_for(lambda: [workers_on(cluster, each) for each in (1, 2)] == [2, 2])


@pytest.mark.parametrize("schedule", ["sync", "overlap"])
def test_a_node_that_joins_is_used_and_changes_no_weight(
    schedule: str, growing: NamespaceCluster, reference: Any, tmp_path: Path
) -> None:
    settings = ["workers=4", "overcommit=true", f"schedule={schedule}", "hold=2,4"]
    run = HeldRun(growing, tmp_path / "run", *settings)
    run.until_update(2)
    assert workers_on(growing, 1) == 4
    add_node(growing, 2, run)
    assert f"weights {reference('ppo', schedule)}" in run.rest()
    assert run.code == 0 and "restarted" not in run.said


def test_workers_go_back_to_a_node_that_returns(fresh: NamespaceCluster, tmp_path: Path) -> None:
    run = HeldRun(fresh, tmp_path / "run", "workers=4", "hold=2,4,6", f"steps={16 * 32 * 8}")
    run.until_update(2)
    fresh.kill(1)
    run.go_on()
    run.until_update(2)
    run.until(f"the workers of node {fresh.address(1)} continue on node {fresh.address(2)} too")
    assert workers_on(fresh, 2) == 4
    add_node(fresh, 1, run)
    assert f"update at step {16 * 32 * 8}, restarts 0" in run.rest()
    assert run.code == 0 and run.said.count("restarted") == 2  # by the loss, not by the moves


def test_environments_that_cannot_be_saved_stay_until_their_node_is_drained(
    growing: NamespaceCluster, tmp_path: Path
) -> None:
    """The new node has too few CPUs for all of its workers, so they share them."""
    settings = ["env=tests.inexact_worlds:Handle", "workers=4", "overcommit=true", "hold=2,3,4"]
    run = HeldRun(growing, tmp_path / "run", *settings)
    run.until_update(2)
    growing.start(2)
    run.until(f"2 workers move to node {growing.address(2)}")
    run.go_on()
    run.until(f"node {growing.address(2)} stays unused, because the environments cannot continue their episodes there:")
    run.until_update(1)
    assert [workers_on(growing, node) for node in (1, 2)] == [4, 0]
    growing.drain(1)
    run.until(f"node {growing.address(1)} is being drained")
    run.until(f"2 workers move to node {growing.address(2)}", times=2)
    run.go_on()
    run.until_update(1)
    run.until(f"the workers of node {growing.address(1)} continue on node {growing.address(2)}")
    assert workers_on(growing, 2) == 4
    assert "weights" in run.rest() and run.code == 0
    assert run.said.count("is being drained); it was in") == 4


def test_a_drained_node_loses_nothing(fresh: NamespaceCluster, reference: Any, tmp_path: Path) -> None:
    run = HeldRun(fresh, tmp_path / "run", "workers=2", "hold=2,4")
    run.until_update(2)
    assert [workers_on(fresh, node) for node in (1, 2)] == [1, 1]
    fresh.drain(1)
    run.until(f"node {fresh.address(1)} is being drained and will stop in")
    run.until(f"1 worker moves to node {fresh.address(2)}")
    run.go_on()
    run.until_update(2)
    fresh.wait_for(lambda: not fresh.processes(1, "envfleet-"))
    assert f"weights {reference('ppo', 'sync')}" in run.rest()
    assert run.code == 0 and "restarted" not in run.said


def test_a_node_out_of_memory(fresh: NamespaceCluster, tmp_path: Path) -> None:
    run = HeldRun(fresh, tmp_path / "run", "workers=2", "hold=2")
    run.until_update(2)
    fresh.fill_memory(1, 0.99)
    fresh.wait_for(lambda: not fresh.processes(1, "envfleet-"))
    run.go_on()
    assert "weights" in run.rest() and run.code == 0
    assert f"node {fresh.address(1)} is out of memory (use fewer workers or smaller environments)" in run.said
    assert f"the workers of node {fresh.address(1)} continue on node {fresh.address(2)}" in run.said


def test_a_lost_head_ends_the_run_with_its_checkpoint(fresh: NamespaceCluster, reference: Any, tmp_path: Path) -> None:
    """The driver is on another node, whose own part of Ray would end it after a minute."""
    folder = tmp_path / "run"
    run = HeldRun(fresh, folder, "workers=2", "hold=3", "checkpoint_every=1", node=1)
    run.until_update(3)
    fresh.kill(0)
    run.until("has not answered")
    run.go_on()  # to its third checkpoint, which would need the simulators
    run.rest()
    head = rf"the head of the cluster \({fresh.address(0)}:\d+\) has not answered for 30 s"
    assert re.search(f"error: {head}\nhint: start a cluster, then continue", run.said), run.said
    assert f"the last checkpoint is at step {2 * 16 * 32:,}; resume with: envfleet resume {folder}" in run.said
    assert run.code == 1 and "Traceback" not in run.said
    fresh.wait_for(lambda: not any(fresh.processes(node, "envfleet-") for node in (1, 2)))
    resume(folder, backend="processes", quiet=True)
    assert digest(folder) == reference("ppo", "sync")
