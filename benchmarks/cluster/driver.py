"""The program that trains on a node, and measures: `python -m benchmarks.cluster.driver '{"backend": "ray", ...}'`.

It prints one line of JSON. Times are medians over rollouts, in seconds.
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


def measure(workload: Workload) -> dict[str, Any]:
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
