"""What is learned, with which settings, and what it has to reach.

Standard library alone: other libraries' virtual environments import this very file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Task:
    """One environment to learn."""

    name: str
    env: str
    seeds: tuple[int, ...]
    evaluation_episodes: int
    recent: int  # training episodes whose mean return counts as the end of a curve
    settings: dict[str, Any] = field(default_factory=dict)  # beside the preset
    algorithm: str = "ppo"
    least: float | None = None  # mean return of the evaluation that is wanted
    beside_peer: bool = False  # learned by Stable-Baselines3 too, with the same settings


# Every value is given, so that both libraries have the same; `peer_run` hands them to Stable-Baselines3.
_HALFCHEETAH = {
    "steps": 300_000,
    "n_envs": 8,
    "rollout_steps": 256,
    "minibatch_size": 64,
    "epochs": 10,
    "gamma": 0.99,
    "lam": 0.95,
    "learning_rate": 3e-4,
    "learning_rate_schedule": "constant",
    "clip_range": 0.2,
    "clip_range_schedule": "constant",
    "entropy_coefficient": 0.0,
    "value_coefficient": 0.5,
    "max_gradient_norm": 0.5,
    "normalise_observations": True,
    "normalise_rewards": True,
}

# Near those that the RL Zoo publishes for Stable-Baselines3: 8 environments, a smaller network, half as many updates.
_LUNARLANDER_DQN = {
    "steps": 100_000,
    "n_envs": 8,
    "rollout_steps": 1,
    "replay_size": 50_000,
    "learning_starts": 1_000,
    "minibatch_size": 128,
    "train_frequency": 8,
    "gradient_steps": 4,
    "target_update_frequency": 128,
    "gamma": 0.99,
    "learning_rate": 6.3e-4,
    "learning_rate_schedule": "constant",
    "max_gradient_norm": 10.0,
    "initial_epsilon": 1.0,
    "epsilon_min": 0.1,
    "exploration_fraction": 0.12,
    "hidden": (128, 128),
    "activation": "relu",
    # What Stable-Baselines3 has not.
    "double": False,
    "dueling": False,
    "n_step": 1,
}

TASKS = {
    task.name: task
    for task in (
        Task("lunarlander", "LunarLander-v3", (1, 2, 3), 100, 100, least=200.0),
        Task("halfcheetah", "HalfCheetah-v5", (1, 2, 3), 20, 40, settings=_HALFCHEETAH, beside_peer=True),
        Task(
            "lunarlander-dqn",
            "LunarLander-v3",
            (1, 2, 3),
            100,
            50,
            settings=_LUNARLANDER_DQN,
            algorithm="dqn",
            beside_peer=True,
        ),
    )
}
