"""Steps until a score is reached: `async` beside `sync`, with the presets alone."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SEEDS = (1, 2, 3)
MOST = 1.3  # wanted: at most this many times the steps of `sync`


@dataclass(frozen=True)
class Task:
    """A task: the mean return of the last 100 training episodes to reach, and the budget of each run."""

    env: str
    score: float
    steps: int


TASKS = {
    "cartpole": Task("CartPole-v1", 400.0, 100_000),
    "acrobot": Task("Acrobot-v1", -110.0, 200_000),
    "lunarlander": Task("LunarLander-v3", 200.0, 1_000_000),
}


def train(task: Task, schedule: str, seed: int) -> dict[str, Any]:
    """Train once; return the steps to the score (None if it was not reached), the end of the curve, and the lag."""
    from envfleet.algorithms.settings import PPO
    from envfleet.training import train as run

    with tempfile.TemporaryDirectory() as folder:
        where: dict[str, Any] = {"backend": "processes", "workers": 2, "acting": "worker"}
        settings = PPO(
            env=task.env,
            seed=seed,
            steps=task.steps,
            schedule=schedule,  # type: ignore[arg-type]
            eval_every=0,
            quiet=True,
            output_dir=str(Path(folder) / "run"),
            **where,
        )
        rows = [row for row in run(settings).metrics if "rollout/ep_rew_mean" in row]
    reached = next((row["step"] for row in rows if row["rollout/ep_rew_mean"] >= task.score), None)
    found = {"seed": seed, "reached": reached, "last": rows[-1]["rollout/ep_rew_mean"]}
    if schedule == "async":
        found |= {
            "lag_mean": statistics.fmean(row["lag/mean"] for row in rows),
            "lag_max": max(row["lag/max"] for row in rows),
            "dropped_steps": rows[-1]["lag/dropped_steps"],
        }
    return found


def measure(names: Sequence[str], report: Callable[[str], None]) -> dict[str, Any]:
    """Train every task with both schedules and all seeds."""
    found: dict[str, Any] = {}
    for name in names:
        task = TASKS[name]
        runs: dict[str, list[dict[str, Any]]] = {"sync": [], "async": []}
        for seed in SEEDS:
            for schedule, done in runs.items():
                done.append(train(task, schedule, seed))
                report(f"{name}, {schedule}, seed {seed}: {done[-1]}")
        found[name] = {
            "env": task.env,
            "score": task.score,
            "budget": task.steps,
            "runs": runs,
            **_compared(runs, task),
        }
    return found


def _compared(runs: dict[str, list[dict[str, Any]]], task: Task) -> dict[str, Any]:
    """Return the mean steps of both schedules and their ratio; a run that did not get there counts with its budget."""
    means = {
        schedule: statistics.fmean(task.steps if run["reached"] is None else run["reached"] for run in done)
        for schedule, done in runs.items()
    }
    return {"mean_steps": means, "ratio": means["async"] / means["sync"], "wanted": MOST}
