"""Whole trainings by preset alone, each in a process of its own, and how well their policies play afterwards."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Case", "play"]


@dataclass(frozen=True)
class Case:
    """A training: what it is given (the preset chooses the rest), and the score that its policy must reach."""

    env: str
    seed: int
    steps: int
    score: float
    memory: str = "none"

    def __str__(self) -> str:
        name = self.env.rpartition(":")[2]
        return f"{name}-{self.memory}-{self.seed}" if self.memory != "none" else f"{name}-{self.seed}"


def play(case: Case) -> float:
    """The mean return of 100 evaluation episodes, with the likeliest actions, after the training."""
    import torch

    from envfleet.algorithms.settings import PPO
    from envfleet.training import train
    from envfleet.training.evaluating import evaluate_run

    torch.set_num_threads(1)  # two trainings share two cores
    with tempfile.TemporaryDirectory() as folder:
        given: dict[str, Any] = {"env": case.env, "seed": case.seed, "steps": case.steps, "memory": case.memory}
        run = Path(folder) / "run"
        train(PPO(**given, backend="sequential", eval_every=0, quiet=True, output_dir=str(run)))
        return evaluate_run(run, episodes=100, trust=True).mean_reward
