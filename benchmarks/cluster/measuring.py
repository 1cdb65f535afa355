"""Measures training on clusters of namespaces: scaling, the cost of a rollout, and the constants of the model."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any

from benchmarks.cluster.driver import ENVS_PER_NODE, STEPS, Workload
from benchmarks.cluster.model import Constants, Load, update
from benchmarks.interleave import quartiles
from benchmarks.sessions import ROOT
from tests.cluster.namespaces import NamespaceCluster

__all__ = ["LARGE", "RATE", "measure_model", "measure_rollouts", "measure_scaling"]

Report = Callable[[str], None]
Figures = dict[str, Any]
LARGE = 28_224  # bytes of an observation: four grey frames of 84 x 84
RATE = "1gbit"  # of the learner's cable, for the model
SCHEDULES = ("sync", "overlap")
VALIDATED = (2, 4, 8)  # nodes


def run(cluster: NamespaceCluster, workload: Workload) -> Figures:
    """Train on the head of the cluster, with environments on `workload.nodes` of its nodes."""
    command = [sys.executable, "-m", "benchmarks.cluster.driver", json.dumps(asdict(workload))]
    said = cluster.run(0, command, 300.0)
    line = next(line for line in said.splitlines() if line.startswith('{"backend"'))
    found: Figures = json.loads(line)
    return found


def run_here(workload: Workload) -> Figures:
    """Train without a cluster, for comparison."""
    command = [sys.executable, "-m", "benchmarks.cluster.driver", json.dumps(asdict(workload))]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: Figures = json.loads(done.stdout.splitlines()[-1])
    return found


def _rounds(rounds: int, cells: list[Any]) -> Iterator[Any]:
    """Yield each cell once per round, in rotating order."""
    for turn in range(rounds):
        first = turn % len(cells)
        yield from cells[first:] + cells[:first]


def measure_scaling(rounds: int, seconds: float, report: Report) -> Figures:
    """Measure the steps per second of 1, 2 and 4 nodes, with real learning."""
    rates: dict[str, list[float]] = {}
    with NamespaceCluster(4) as cluster:
        for schedule, nodes in _rounds(rounds, [(each, nodes) for each in SCHEDULES for nodes in (1, 2, 4)]):
            found = run(cluster, Workload("ray", nodes, schedule, seconds=seconds))
            rates.setdefault(f"{schedule} {nodes}", []).append(found["steps_per_second"])
            report(f"scaling: {schedule}, {nodes} nodes: {found['steps_per_second']:.0f} steps/s")
    shares = {
        f"{schedule} {nodes}": quartiles(
            many / one / nodes for many, one in zip(rates[f"{schedule} {nodes}"], rates[f"{schedule} 1"], strict=True)
        )
        for schedule in SCHEDULES
        for nodes in (2, 4)
    }
    return {"steps_per_second": {name: quartiles(values) for name, values in rates.items()}, "share": shares}


def measure_rollouts(rounds: int, seconds: float, report: Report) -> Figures:
    """Measure what a rollout costs beyond one of `processes`: two workers on two other nodes, on the same cores.

    Messages of the same size, without rollouts, show what Ray itself takes.
    """
    kinds = {"small": 16, "large": LARGE}
    times: dict[tuple[str, str], list[float]] = {}
    sizes: dict[str, float] = {}
    with NamespaceCluster(2) as cluster:
        for kind in _rounds(rounds, list(kinds)):
            workload = Workload(
                "processes", 2, milliseconds=0.0, observation_bytes=kinds[kind], learns=False, seconds=seconds
            )
            alone = run_here(workload)
            moved = {name: alone[name] for name in ("rollout_bytes", "weight_bytes")}
            sizes[kind] = (moved["rollout_bytes"] + 2 * moved["weight_bytes"]) / 1e6
            found = {
                "processes": alone,
                "ray": run(cluster, replace(workload, backend="ray")),
                "messages": run(cluster, replace(workload, backend="messages", **moved)),
            }
            for backend, figures in found.items():
                times.setdefault((kind, backend), []).append(figures["rollout"])
                report(f"rollouts: {kind}, {backend}: {1000 * figures['rollout']:.1f} ms")
    return {
        kind: {
            "megabytes": sizes[kind],
            "processes": quartiles(times[kind, "processes"]),
            "ray": quartiles(times[kind, "ray"]),
            "messages": quartiles(times[kind, "messages"]),
            "more": quartiles(
                ours - other for ours, other in zip(times[kind, "ray"], times[kind, "processes"], strict=True)
            ),
        }
        for kind in kinds
    }


def measure_model(rounds: int, seconds: float, report: Report) -> Figures:
    """Measure the constants on one node and compare the model with 2, 4 and 8 nodes behind a cable of `RATE`.

    All take turns, because the speed of a shared machine changes.
    """
    sizes = {"vectors": 16, "pictures": LARGE}
    cells = [(kind, nodes, schedule) for kind in sizes for nodes in VALIDATED for schedule in SCHEDULES]
    one = [(kind, nodes, "sync") for kind in sizes for nodes in (0, 1)]  # 0: without a cluster
    found: dict[Any, list[Figures]] = {cell: [] for cell in one + cells}
    with NamespaceCluster(max(VALIDATED)) as cluster:
        cluster.shape(0, RATE)
        bandwidth = bandwidth_of(cluster)
        report(f"model: {bandwidth / 1e6:.0f} MB/s through the cable")
        for cell in _rounds(rounds, one + cells):
            kind, nodes, schedule = cell
            workload = Workload("ray", nodes, schedule, observation_bytes=sizes[kind], seconds=seconds)
            alone = replace(workload, backend="processes", nodes=1)
            found[cell].append(run(cluster, workload) if nodes else run_here(alone))
            report(f"model: {kind}, {nodes} nodes, {schedule}: {1000 * found[cell][-1]['update']:.0f} ms")
    alone, single = ({kind: found[kind, nodes, "sync"] for kind in sizes} for nodes in (0, 1))
    constants = constants_of(alone, single, bandwidth)
    loads = {kind: load_of(alone[kind]) for kind in sizes}
    checked = [
        {
            "kind": kind,
            "nodes": nodes,
            "schedule": schedule,
            "measured": nodes * ENVS_PER_NODE * STEPS / _median(found[kind, nodes, schedule], "steps_per_second"),
            "expected": update(constants, loads[kind], nodes).seconds(schedule),
        }
        for kind, nodes, schedule in cells
    ]
    return {
        "rounds": rounds,
        "seconds": seconds,
        "constants": asdict(constants),
        "loads": {kind: asdict(load) for kind, load in loads.items()},
        "runs": {" ".join(map(str, cell)): runs for cell, runs in found.items()},
        "checked": checked,
    }


_RECEIVES = """
import socket, sys, time
listener = socket.create_server(("0.0.0.0", 7001))
print("listening", flush=True)
connection, _ = listener.accept()
size, got, began = int(sys.argv[1]), 0, time.perf_counter()
while got < size:
    got += len(connection.recv(2**18))
print(size / (time.perf_counter() - began))
"""
_SENDS = "import socket, sys; socket.create_connection((sys.argv[1], 7001)).sendall(bytes(int(sys.argv[2])))"


def bandwidth_of(cluster: NamespaceCluster, size: int = 100_000_000) -> float:
    """Return the bytes per second from node 1 to the head, by a plain transfer."""
    with cluster.popen(0, [sys.executable, "-c", _RECEIVES, str(size)]) as receiver:
        assert receiver.stdout is not None and receiver.stdout.readline() == "listening\n"
        cluster.run(1, [sys.executable, "-c", _SENDS, cluster.address(0), str(size)])
        return float(receiver.stdout.read())


def _median(runs: list[Figures], name: str) -> float:
    return float(statistics.median(run[name] for run in runs))


def load_of(alone: list[Figures]) -> Load:
    """What a host does, from runs without a cluster."""
    return Load(
        collecting=_median(alone, "rollout"),
        row_bytes=_median(alone, "rollout_bytes"),
        weight_bytes=_median(alone, "weight_bytes"),
        learning=_median(alone, "learning"),
        spread=0.0,  # the environments wait equally long
    )


def constants_of(alone: dict[str, list[Figures]], single: dict[str, list[Figures]], bandwidth: float) -> Constants:
    """The constants, from runs without a cluster and with one node, of vectors and of pictures."""

    def more(name: str) -> tuple[float, float]:
        """What one node costs beyond none: with vectors, and in addition with pictures. Noise may hide it."""
        vectors, pictures = (
            _median(single[kind], name) - _median(alone[kind], name) for kind in ("vectors", "pictures")
        )
        return max(0.0, vectors), max(0.0, pictures - max(0.0, vectors))

    (small, large), (per_host, copying) = more("rollout"), more("driver_cpu")
    rows, weights = (
        _median(alone["pictures"], name) - _median(alone["vectors"], name) for name in ("rollout_bytes", "weight_bytes")
    )
    packing = max(0.0, large - (rows + weights) / bandwidth - copying)
    return Constants(per_host, max(0.0, small - per_host), bandwidth, packing / rows, copying / rows)
