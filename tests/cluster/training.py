"""A short training for the tests on clusters: `python -m tests.cluster.training FOLDER NAME=VALUE ...`.

It prints a line after each update, and a digest of the weights at its end. `world=NAME` chooses one of `WORLDS`.
`hold=3,5` lets it wait for a line from stdin after the updates 3 and 5.
"""

from __future__ import annotations

import hashlib
import logging
import sys
from pathlib import Path
from typing import Any

import yaml

from envfleet.algorithms.settings import DQN, PPO, SAC
from envfleet.errors import EnvfleetError
from envfleet.training import resume, train
from envfleet.training.callbacks import Callback, Moment
from tests.training.worlds import Masked, Nested

__all__ = ["ON_CLUSTER", "PROGRAM", "WORLDS", "digest", "train_in"]

PROGRAM = [sys.executable, "-m", "tests.cluster.training"]
ON_CLUSTER = ["backend=ray", "address=auto"]

_PPO: dict[str, Any] = {
    "env": "CartPole-v1",
    "n_envs": 16,
    "group_size": 4,
    "rollout_steps": 32,
    "steps": 16 * 32 * 6,
    "minibatch_size": 128,
    "epochs": 2,
    "hidden": (16,),
    "sequence_length": 8,
    "memory_size": 16,
}
_REPLAY: dict[str, Any] = {
    "n_envs": 16,
    "group_size": 4,
    "rollout_steps": 8,
    "steps": 16 * 8 * 8,
    "learning_starts": 128,
    "replay_size": 512,
    "hidden": (16,),
}
WORLDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "ppo": (PPO, _PPO),
    "gru": (PPO, {**_PPO, "memory": "gru"}),
    "masks": (PPO, {**_PPO, "env": Masked}),
    "dict": (PPO, {**_PPO, "env": Nested}),
    "dqn": (DQN, {**_REPLAY, "env": "CartPole-v1", "train_frequency": 16}),
    "sac": (SAC, {**_REPLAY, "env": "Pendulum-v1", "minibatch_size": 32, "updates_per_step": 0.25}),
}


class Says(Callback):
    """Prints a line after each update, and waits for a line after some."""

    def __init__(self, hold: str = "") -> None:
        self._hold, self._updates = [int(number) for number in hold.split(",") if number], 0

    def on_update(self, moment: Moment) -> None:
        restarts = int(moment.metrics.get("fleet/restarts", 0))
        sys.stdout.write(f"update at step {moment.steps}, restarts {restarts}\n")
        sys.stdout.flush()
        self._updates += 1
        if self._updates in self._hold:
            sys.stdin.readline()


def train_in(folder: Path, world: str = "ppo", hold: str = "", **changes: Any) -> str:
    """Train and return the digest of the weights."""
    kind, settings = WORLDS[world]
    common = {"seed": 5, "eval_every": 0, "quiet": True, "output_dir": str(folder)}
    train(kind(**{**settings, **common, **changes}), callbacks=[Says(hold)])
    return digest(folder)


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / "checkpoints" / "final" / "policy.safetensors").read_bytes()).hexdigest()[:16]


def main() -> None:
    logging.basicConfig(level=logging.WARNING)
    folder, given = Path(sys.argv[1]), dict(each.split("=", 1) for each in sys.argv[2:])
    changes = {name: value if name == "hold" else yaml.safe_load(value) for name, value in given.items()}
    if changes.pop("resume", None):
        resume(folder, quiet=True, trust=True, **changes)
        found = digest(folder)
    else:
        try:
            found = train_in(folder, **changes)
        except EnvfleetError as error:  # as the command does
            sys.exit(f"error: {error}")
    sys.stdout.write(f"weights {found}\n")


if __name__ == "__main__":
    main()
