"""Workloads of the PPO benchmark: the environment and the sizes of PPO, the same for every library.

Only the standard library is used, because other libraries' virtual environments import this file.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

IMAGES_ENV = "benchmarks.ppo.environments:SyntheticImages"
COINRUN_ENV = "envfleet.environments.procgen.environment:ProcgenEnv"
COMPUTED_ENV = "benchmarks.ppo.environments:ComputedSteps"
MEMORY_UNITS, PIECE_STEPS = 128, 32


@dataclass(frozen=True)
class Sizes:
    """One workload: environment, rollout size, minibatch size and epochs."""

    env: str
    n_envs: int
    rollout_steps: int
    minibatch_size: int
    epochs: int
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    network: str = "auto"

    @property
    def has_images(self) -> bool:
        return self.env in (IMAGES_ENV, COINRUN_ENV)

    @property
    def rollout_size(self) -> int:
        return self.n_envs * self.rollout_steps

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def ours(
        self,
        *,
        schedule: Literal["sync", "overlap"] = "sync",
        memory: Literal["none", "gru", "lstm"] = "none",
        **more: Any,
    ) -> dict[str, Any]:
        """Return settings for `envfleet.PPO`; features that other libraries lack by default are off."""
        return {
            **asdict(self),
            "schedule": schedule,
            "memory": memory,
            "memory_size": MEMORY_UNITS,
            "sequence_length": PIECE_STEPS,
            "backend": "processes",
            "steps": 10**12,
            "seed": 0,
            "learning_rate": 3e-4,
            "learning_rate_schedule": "constant",
            "clip_range_schedule": "constant",
            "entropy_coefficient": 0.0,
            "normalise_observations": False,
            "normalise_rewards": False,
            **more,
        }


COINRUN = {"game": "coinrun", "num_levels": 200, "distribution_mode": "easy"}
SIZES = {
    "cartpole-8": Sizes("CartPole-v1", 8, 128, 256, 4),
    "cartpole-64": Sizes("CartPole-v1", 64, 128, 2048, 4),
    "halfcheetah": Sizes("HalfCheetah-v5", 8, 256, 64, 10),
    "images": Sizes(IMAGES_ENV, 32, 128, 1024, 3),
    "coinrun": Sizes(COINRUN_ENV, 32, 128, 1024, 3, COINRUN, "nature"),
    "collecting-coinrun": Sizes(COINRUN_ENV, 64, 128, 1024, 1, COINRUN),
    "impala": Sizes(IMAGES_ENV, 32, 32, 512, 3, network="impala"),
    "recurrent": Sizes("CartPole-v1", 8, 128, 256, 4),
    # More epochs than elsewhere: with four, acting alone would take as long as learning.
    "balanced": Sizes(COMPUTED_ENV, 8, 128, 256, 10),
}
