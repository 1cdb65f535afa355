"""Trains and breaks things on a Ray cluster of this machine, and prints the results as JSON, for `test_local.py`.

It is a program of its own because Ray stays in a process once it is used. Its argument is the folder for the runs.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import envfleet
from envfleet.errors import EnvfleetError
from envfleet.fleet.backends import ray_cluster, ray_link
from envfleet.fleet.cluster import ClusterSettings
from tests.cluster.training import WORLDS, train_in
from tests.fleet.simulators import Counter

__all__ = ["RUNS"]

RUNS = list(itertools.product(WORLDS, ["sync", "overlap"]))


def runs(folder: Path) -> dict[str, str]:
    """Return the digests of the weights of some trainings."""
    where: dict[str, Any] = {"backend": "ray", "workers": 2, "numerics": "strict"}
    found = {}
    for world, schedule in RUNS:
        name = f"{world}-{schedule}"
        found[name] = train_in(folder / name, world, schedule=schedule, **where)
    return found


def lost_host() -> dict[str, Any]:
    """Return what a fleet gives when the process of its host is killed, and when one worker is."""
    actions = np.zeros(4, np.int64)
    with envfleet.make(Counter, 4, group_size=2, seed=10, backend="ray", workers=2) as fleet:
        fleet.reset()
        fleet.step(actions)
        (facts,) = fleet.hosts
        worker = psutil.Process(fleet.statistics().workers[0].pid)
        worker.kill()
        one = fleet.step(actions)
        host = worker_host(fleet)
        os.kill(host, signal.SIGKILL)
        both = fleet.step(actions)
        last = fleet.step(actions)
        pids = [each.pid for each in fleet.statistics().workers]
    return {
        "one": one[4]["restarted"].tolist(),
        "both": both[4]["restarted"].tolist(),
        "last": last[0][:, 0].tolist(),
        "cpu": facts[1].numerics.cpu,
        "workers": pids,
    }


def worker_host(fleet: envfleet.Fleet) -> int:
    """Return the process of the host of the second worker: Ray's raylet started it."""
    above = psutil.Process(fleet.statistics().workers[1].pid).parents()  # the fork server, the host, the raylet, ...
    return next(host.pid for host, parent in itertools.pairwise(above) if parent.name() == "raylet")


def refusals() -> dict[str, str]:
    """Return the errors of settings that cannot work."""
    cases: dict[str, dict[str, Any]] = {
        "workers": {"workers": 99, "group_size": 1},
        "client": {"address": "ray://127.0.0.1:10001"},
        "runtime_env": {"address": ClusterSettings(runtime_env="no-such-file.yaml")},
    }
    found = {}
    for name, settings in cases.items():
        try:
            envfleet.make(Counter, 128, backend="ray", **settings).close()
        except EnvfleetError as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found


def main() -> None:
    logging.basicConfig(level=logging.WARNING)
    ray_link.SILENCE_BEATS = 120  # the machine may be busy
    ray_cluster.connect(ClusterSettings(), 4)  # CPUs for a host and its replacement
    found: dict[str, Any] = {"lost": lost_host(), "refusals": refusals(), "runs": runs(Path(sys.argv[1]))}
    found["head"] = ray_cluster.head_of()
    sys.stdout.write(f"result {json.dumps(found)}\n")


if __name__ == "__main__":
    main()
