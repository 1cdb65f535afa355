"""One learning run of Envfleet; prints its curve and its evaluation as one line of JSON."""

from __future__ import annotations

import argparse
import json
import tempfile
from statistics import fmean
from time import monotonic
from typing import Any

import envfleet.training
from benchmarks.learning.tasks import TASKS, Task
from envfleet.algorithms.settings import DQN, PPO
from envfleet.training.callbacks import Callback, Moment
from envfleet.training.evaluating import evaluate_run

ALGORITHMS = {"ppo": PPO, "dqn": DQN}


class Curve(Callback):
    """Takes note of the episodes that end in each rollout: (steps so far, their mean return, their number)."""

    def __init__(self) -> None:
        self.points: list[tuple[int, float, int]] = []
        self.steps = 0

    def on_rollout(self, moment: Moment, rollout: Any) -> None:
        self.steps = moment.steps
        returns, _ = rollout.episodes()
        if len(returns):
            self.points.append((moment.steps, round(fmean(returns.tolist()), 2), len(returns)))


def learn(task: Task, seed: int, backend: str) -> dict[str, Any]:
    """Trains with the preset and the task's settings, then evaluates the final policy."""
    curve, began = Curve(), monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/run"
        settings = ALGORITHMS[task.algorithm](
            env=task.env, seed=seed, backend=backend, output_dir=path, eval_every=0, quiet=True, **task.settings
        )
        envfleet.training.train(settings, callbacks=[curve])
        minutes = (monotonic() - began) / 60
        evaluation = evaluate_run(path, episodes=task.evaluation_episodes)
    return {
        "seed": seed,
        "steps": curve.steps,  # whole rollouts: a little more than the budget
        "minutes": minutes,
        "curve": curve.points,
        "evaluation": {"mean": evaluation.mean_reward, "std": evaluation.std_reward, "episodes": evaluation.episodes},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--backend", default="auto", help="where environments run; it never changes a result")
    options = parser.parse_args()
    print(json.dumps(learn(TASKS[options.task], options.seed, options.backend)))


if __name__ == "__main__":
    main()
