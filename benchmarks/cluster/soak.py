"""Soak test of a cluster: train on four nodes while one is killed every two minutes and joins again.

    python -m benchmarks.cluster --parts soak --output docs/benchmarks/cluster.json

The part that trains is this module as a program, on the head: `python -m benchmarks.cluster.soak FOLDER MINUTES`.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium

from benchmarks.soak import Watch, results_of
from tests.cluster.namespaces import NamespaceCluster

__all__ = ["ENVS_PER_NODE", "NODES", "Waiting", "measure_soak"]

NODES, ENVS_PER_NODE = 4, 4
AWAY_SECONDS = 20.0  # between the end of a node and its return


class Waiting(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Waits a millisecond in every step, because all nodes share the cores of one machine."""

    def step(self, action: Any) -> Any:
        time.sleep(0.001)
        return super().step(action)


def measure_soak(minutes: float, kill_every: float, report: Callable[[str], None]) -> dict[str, Any]:
    """Train for some minutes; kill the nodes in turn."""
    kills = 0
    with NamespaceCluster(NODES) as cluster, tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.cluster.soak", str(Path(folder) / "run"), str(minutes)]
        with cluster.popen(0, command) as process:
            began = time.monotonic()
            while process.poll() is None and time.monotonic() - began < 60 * minutes + 120:
                due = (kills + 1) * kill_every
                if time.monotonic() - began > due and due < 60 * minutes - kill_every / 2:
                    node = 1 + kills % NODES
                    report(f"soak: minute {(time.monotonic() - began) / 60:.1f}, node {node} is killed")
                    cluster.kill(node)
                    kills += 1
                    time.sleep(AWAY_SECONDS)
                    cluster.start(node)
                time.sleep(0.5)
            out, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors[-3000:]
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    moved = [line.strip() for line in errors.splitlines() if "continue on node" in line]
    return {**found, "kills": kills, "moved": len(moved), "kill_every": kill_every, "minutes": minutes}


def main() -> None:
    from envfleet.algorithms.settings import PPO
    from envfleet.training import train

    folder, minutes = sys.argv[1], float(sys.argv[2])
    settings = PPO(
        env="CartPole-v1",
        wrappers=("benchmarks.cluster.soak:Waiting",),
        n_envs=NODES * ENVS_PER_NODE,
        group_size=ENVS_PER_NODE,
        rollout_steps=64,
        duration=minutes / 60,
        seed=1,
        backend="ray",
        address="auto",
        workers=NODES,
        eval_every=0,
        checkpoint_minutes=max(0.1, minutes / 20),
        output_dir=folder,
        quiet=True,
    )
    with Watch(0.0) as watch:
        train(settings, callbacks=[watch])
    sys.stdout.write(json.dumps(results_of(watch.figures, {})) + "\n")


if __name__ == "__main__":
    main()
