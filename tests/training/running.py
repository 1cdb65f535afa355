"""Short trainings for tests, and what is compared of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from envfleet.algorithms.settings import PPO
from envfleet.runs.run import Run
from envfleet.training import train

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
    """Settings of a training of three updates, in a second or so."""
    return PPO(**{**SMALL, "output_dir": str(folder), **changes})


def run(folder: Path, callbacks: Any = (), **changes: Any) -> Run:
    return train(small(folder, **changes), callbacks=callbacks)


def weights(folder: Path, checkpoint: str = "final") -> bytes:
    """The file of the final weights, as it is."""
    return (folder / "checkpoints" / checkpoint / "policy.safetensors").read_bytes()
