"""Tables of the benchmark: the rows of each environment."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from benchmarks.ppo.random_session import STEPS
from benchmarks.ppo.rounds import Procedure, measure_rows
from benchmarks.ppo.rows import Lockstep, Row, our_row
from benchmarks.sessions import Session
from benchmarks.workloads import WORKLOADS

UNITS, HIDDEN = 128, (128, 128, 128)  # of the recurrent policy: a GRU and three layers

Table = dict[str, Any]


def collecting(workload: str, n_envs: int, procedure: Procedure) -> Table:
    """Collect trials in `n_envs` environments."""
    arguments = ["--workload", workload, "--envs", n_envs]
    policy = ["--hidden", *HIDDEN, "--units", UNITS]
    random, pipes = "benchmarks.ppo.random_session", "benchmarks.meta.pipes_session"
    rows = [
        Row("limit", "independent processes, no policy", lambda: Lockstep(workload, n_envs, procedure.cores)),
        Row(
            "waiting",
            "the same, waiting for each other after every rollout",
            lambda: Lockstep(workload, n_envs, procedure.cores, in_step=True, wait_every=STEPS),
        ),
        Row("random", "Envfleet, random actions", lambda: Session(random, arguments), ours=True),
        Row("pipes-random", "a process per environment, random actions", lambda: Session(pipes, arguments)),
        our_row("recurrent", "Envfleet, GRU in the workers", settings(workload, n_envs), collect_only=True),
        Row("pipes-recurrent", "a process per environment, GRU", lambda: Session(pipes, [*arguments, *policy])),
    ]
    title = f"{WORKLOADS[workload].title}, {n_envs} environments"
    return {"title": title, "rows": measure_rows(f"{workload}-{n_envs}", rows, procedure)}


def settings(workload: str, n_envs: int) -> dict[str, Any]:
    """Settings of `envfleet.PPO` for collecting alone."""
    return {
        "env": WORKLOADS[workload].env,
        "n_envs": n_envs,
        "memory": "gru",
        "memory_size": UNITS,
        "hidden": HIDDEN,
        "rollout_steps": STEPS,
        "sequence_length": STEPS,
        "backend": "processes",
        "steps": 10**12,
        "seed": 0,
    }


TABLES: dict[str, Callable[[Procedure], Table]] = {
    "antdir-8": functools.partial(collecting, "antdir", 8),
    "antdir-16": functools.partial(collecting, "antdir", 16),
    "pointrobotsparse-16": functools.partial(collecting, "pointrobotsparse", 16),
}
