"""Train Envfleet on one task; print the curve and the evaluation as one line of JSON.

If the environment variable LEARNING_DIR is set, the run folder is kept there and an interrupted run resumes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import envfleet.training
from benchmarks.learning.tasks import TASKS, Task
from envfleet.algorithms.settings import DQN, PPO, SAC
from envfleet.runs.checkpoints import Checkpoints
from envfleet.runs.metrics import read_metrics
from envfleet.training.callbacks import Callback, Moment
from envfleet.training.evaluating import RunEvaluation, evaluate_run

ALGORITHMS = {"ppo": PPO, "dqn": DQN, "sac": SAC}
RETURN, EPISODES = "learning/return", "learning/episodes"


class Curve(Callback):
    """Add the episodes that end in each rollout to the metrics: their mean return and their number."""

    def on_rollout(self, moment: Moment, rollout: Any) -> None:
        returns, _ = rollout.episodes()
        if len(returns):
            moment.metrics[RETURN], moment.metrics[EPISODES] = fmean(returns.tolist()), float(len(returns))


def learn(task: Task, seed: int, backend: str) -> dict[str, Any]:
    """Train with the preset and the task's settings, then evaluate the final policy."""
    with _folder() as parent:
        path = parent / f"{task.name}-seed-{seed}"
        if not (path / "config.yaml").exists():
            settings = ALGORITHMS[task.algorithm](
                env=task.env, seed=seed, backend=backend, output_dir=str(path), eval_every=0, **task.settings
            )
            envfleet.training.train(settings, callbacks=[Curve()])
        elif Checkpoints(path / "checkpoints").step_of("final") is None:
            envfleet.training.resume(path, callbacks=[Curve()])
        rows = [row for row in read_metrics(path / "metrics.jsonl") if "time/seconds" in row]
        played = evaluate_run(path, episodes=task.evaluation_episodes)
    evaluation = _figures(played)
    if played.held_out is not None:
        evaluation["held_out"] = _figures(played.held_out)
    return {
        "seed": seed,
        "steps": rows[-1]["step"],  # whole rollouts: a little more than the budget
        "minutes": rows[-1]["time/seconds"] / 60,
        "curve": [(row["step"], round(row[RETURN], 2), int(row[EPISODES])) for row in rows if RETURN in row],
        "evaluation": evaluation,
    }


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    if kept := os.environ.get("LEARNING_DIR"):
        yield Path(kept).expanduser().resolve()
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def _figures(played: RunEvaluation) -> dict[str, Any]:
    return {"mean": played.mean_reward, "std": played.std_reward, "episodes": played.episodes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--backend", default="auto", help="where environments run; it never changes a result")
    options = parser.parse_args()
    print(json.dumps(learn(TASKS[options.task], options.seed, options.backend)))


if __name__ == "__main__":
    main()
