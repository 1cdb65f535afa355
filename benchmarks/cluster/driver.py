"""The program that trains on a node, and measures: `python -m benchmarks.cluster.driver '{"backend": "ray", ...}'`.

It prints one line of JSON. Times are medians over rollouts, in seconds. The backend `messages` trains nothing: plain
actors of Ray, one per node, receive as many bytes as the weights of a rollout have and return as many as its rows. No
rollout on these nodes can cost less.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["ENVS_PER_NODE", "STEPS", "Workload"]

ENVS_PER_NODE, STEPS = 4, 32  # one worker per node; a rollout of 4 environments that wait 2 ms takes a quarter second
WARM_UP = 3  # rollouts


@dataclass(frozen=True)
class Workload:
    """What to measure."""

    backend: str
    nodes: int
    schedule: str = "sync"
    milliseconds: float = 2.0
    observation_bytes: int = 16
    learns: bool = True  # else rollouts alone
    seconds: float = 10.0
    rollout_bytes: int = 0  # of the backend `messages`
    weight_bytes: int = 0

    def settings(self) -> Any:
        from envfleet.algorithms.settings import PPO

        settings: dict[str, Any] = {
            "env": "benchmarks.asynchrony.environments:Waits",
            "env_kwargs": {"milliseconds": self.milliseconds, "size": self.observation_bytes},
            "n_envs": ENVS_PER_NODE * self.nodes,
            "group_size": ENVS_PER_NODE,
            "rollout_steps": STEPS,
            "minibatch_size": ENVS_PER_NODE * STEPS,
            "epochs": 2,
            "hidden": (16,) if self.observation_bytes > 1000 else (64, 64),
            "learner_threads": 1,
            "seed": 1,
            "backend": self.backend,
            "workers": self.nodes,
            "acting": "worker",
            "schedule": self.schedule,
            "quiet": True,
        }
        return PPO(**settings, address="auto" if self.backend == "ray" else None)


class Echo:
    """Answers with rows, whatever it is sent."""

    def __init__(self, size: int) -> None:
        import numpy as np

        self._rows = np.ones(size, np.uint8)

    def answer(self, weights: bytes) -> Any:
        return self._rows


def measure_messages(workload: Workload) -> dict[str, Any]:
    """Measure one call to an actor on each node, with the values sent as envfleet sends them."""
    from envfleet.fleet.backends.ray_cluster import (
        INLINE_LIMITS,
        NodeAffinitySchedulingStrategy,
        connect,
        live_nodes,
        ray,
    )
    from envfleet.fleet.cluster import ClusterSettings

    connect(ClusterSettings(address="auto"))
    nodes = [node for node in live_nodes() if node.cpus][: workload.nodes]
    actors = [
        ray.remote(Echo)
        .options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
            runtime_env={"env_vars": INLINE_LIMITS},
        )
        .remote(workload.rollout_bytes // len(nodes))
        for node in nodes
    ]
    weights, times = bytes(workload.weight_bytes), []
    began = time.perf_counter()
    while time.perf_counter() - began < workload.seconds or len(times) <= WARM_UP:
        start = time.perf_counter()
        rows = [ray.get(answer) for answer in [actor.answer.remote(weights) for actor in actors]]
        times.append(time.perf_counter() - start)
    del rows
    return {**asdict(workload), "rollout": statistics.median(times[WARM_UP:])}


def measure(workload: Workload) -> dict[str, Any]:
    if workload.backend == "messages":
        return measure_messages(workload)
    from envfleet.training.assembly import assemble, resolve

    resolved = resolve(workload.settings())
    with closing(resolved.stage), closing(assemble(resolved)) as parts:
        rollouts: list[float] = []
        learning: list[float] = []
        total: list[float] = []

        def advance() -> Any:
            began = time.perf_counter()
            rollout = parts.schedule.next()
            collected = time.perf_counter()
            if workload.learns:
                parts.learner.learn(rollout, 0.0)
            ended = time.perf_counter()
            rollouts.append(collected - began)
            learning.append(ended - collected)
            total.append(ended - began)
            return rollout

        for _ in range(WARM_UP):
            rollout = advance()
        arrays = [rollout.rewards, rollout.valid, *rollout.columns.values(), *rollout.observations.values()]
        for times in (rollouts, learning, total):
            times.clear()
        began, cpu = time.perf_counter(), time.process_time()
        while time.perf_counter() - began < workload.seconds:
            advance()
        passed = time.perf_counter() - began
        return {
            **asdict(workload),
            "steps_per_second": len(total) * rollout.rewards.size / passed,
            "rollout": statistics.median(rollouts),
            "learning": statistics.median(learning),
            "update": statistics.median(total),
            "driver_cpu": (time.process_time() - cpu) / len(total),
            "rollout_bytes": sum(array.nbytes for array in arrays),
            "weight_bytes": parts.learner.weights().nbytes,
        }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure(Workload(**json.loads(sys.argv[1])))) + "\n")
