"""Workloads of the DQN benchmark, the same for every library.

Only the standard library is used, because other libraries' virtual environments import this file.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

COMPUTED_ENV = "benchmarks.ppo.environments:ComputedSteps"
MILLION = 1_000_000
# Switches off what Stable-Baselines3's DQN does not have.
PLAIN: dict[str, Any] = {"double": False, "dueling": False, "n_step": 1}


@dataclass(frozen=True)
class Sizes:
    """One workload: one update on `minibatch_size` transitions per step of the vector env."""

    env: str = "CartPole-v1"
    n_envs: int = 8
    minibatch_size: int = 64
    hidden: tuple[int, ...] = (64, 64)
    replay_size: int = 100_000
    learning_starts: int = 1_000
    target_updates: int = 1_250  # updates between two updates of the target network: 10,000 steps
    epsilon: float = 0.05
    learning_rate: float = 1e-4
    env_kwargs: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def ours(self, **more: Any) -> dict[str, Any]:
        """Return settings for `envfleet.DQN`."""
        return {
            "env": self.env,
            "env_kwargs": self.env_kwargs,
            "n_envs": self.n_envs,
            "train_frequency": self.n_envs,
            "minibatch_size": self.minibatch_size,
            "hidden": self.hidden,
            "replay_size": self.replay_size,
            "learning_starts": self.learning_starts,
            "target_update_frequency": self.target_updates,
            "initial_epsilon": self.epsilon,
            "epsilon_min": self.epsilon,
            "learning_rate": self.learning_rate,
            "rollout_steps": 16,
            "backend": "processes",
            "steps": 10**12,
            "seed": 0,
            **more,
        }
