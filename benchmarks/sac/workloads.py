"""Workloads of the SAC benchmark, the same for every library.

Only the standard library is used, because other libraries' virtual environments import this file.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

COMPUTED_ENV = "benchmarks.sac.environments:ComputedControl"
TRIALS_ENV = "benchmarks.sac.environments:RandomTrials"


@dataclass(frozen=True)
class Sizes:
    """Training without memory: one update on `minibatch_size` transitions per environment step."""

    env: str = "HalfCheetah-v5"
    n_envs: int = 8
    minibatch_size: int = 256
    hidden: tuple[int, ...] = (256, 256)
    replay_size: int = 100_000
    learning_starts: int = 1_000
    learning_rate: float = 3e-4
    env_kwargs: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def ours(self, **more: Any) -> dict[str, Any]:
        """Return settings for `envfleet.SAC`."""
        return {
            "env": self.env,
            "env_kwargs": self.env_kwargs,
            "n_envs": self.n_envs,
            "minibatch_size": self.minibatch_size,
            "hidden": self.hidden,
            "replay_size": self.replay_size,
            "learning_starts": self.learning_starts,
            "learning_rate": self.learning_rate,
            "updates_per_step": 1.0,
            "rollout_steps": 4,
            "steps": 10**12,
            "seed": 0,
            **more,
        }


@dataclass(frozen=True)
class RecurrentSizes:
    """Updates of an agent with memory, on whole trials. The networks are those of pomdp-baselines for a task."""

    memory: str
    length: int  # steps of a trial
    observation: int
    action: int
    embeddings: tuple[int, int, int]  # of action, reward and observation
    hidden: tuple[int, ...]
    units: int = 128
    batch: int = 32
    trials: int = 64  # in the replay buffer
    gamma: float = 0.99
    learning_rate: float = 3e-4
    target_rate: float = 0.005

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def recurrent_sizes(memory: str, length: int) -> RecurrentSizes:
    """PointRobot's networks for short trials, AntDir's for long ones."""
    if length <= 120:
        return RecurrentSizes(memory, length, 3, 2, (0, 8, 32), (128, 128))
    return RecurrentSizes(memory, length, 28, 8, (16, 16, 32), (128, 128, 128))
