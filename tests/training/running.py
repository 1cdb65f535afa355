"""Short training runs for tests, and the weights they compare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from envfleet.algorithms.settings import PPO
from envfleet.runs.run import Run
from envfleet.training import train
from envfleet.training.callbacks import Callback, Moment

SMALL: dict[str, Any] = {
    "env": "CartPole-v1",
    "n_envs": 12,
    "rollout_steps": 32,
    "steps": 12 * 32 * 3,
    "minibatch_size": 96,
    "epochs": 2,
    "sequence_length": 8,
    "memory_size": 16,
    "hidden": (16,),
    "seed": 5,
    "backend": "sequential",
    "eval_every": 0,
    "quiet": True,
}


def small(folder: Path, **changes: Any) -> PPO:
    """Return settings for three updates, which take about a second."""
    return PPO(**{**SMALL, "output_dir": str(folder), **changes})


def run(folder: Path, callbacks: Any = (), **changes: Any) -> Run:
    return train(small(folder, **changes), callbacks=callbacks)


def weights(folder: Path, checkpoint: str = "final") -> bytes:
    """Return the raw bytes of a checkpoint's policy file."""
    return (folder / "checkpoints" / checkpoint / "policy.safetensors").read_bytes()


class StopAfter(Callback):
    """Ends the training after `updates` updates, as a signal would."""

    def __init__(self, updates: int) -> None:
        self.left = updates

    def on_update(self, moment: Moment) -> None:
        self.left -= 1
        moment.stop = self.left == 0
