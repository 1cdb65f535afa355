"""The settings of all algorithms. Importing this does not load torch."""

from __future__ import annotations

from envfleet.algorithms.common_settings import BACKENDS, DEFAULT_STEPS, HARMLESS, TrainingSettings
from envfleet.algorithms.dqn_settings import DQN
from envfleet.algorithms.ppo_settings import PPO

__all__ = ["ALGORITHMS", "BACKENDS", "DEFAULT_STEPS", "DQN", "HARMLESS", "PPO", "TrainingSettings"]

ALGORITHMS: dict[str, type[TrainingSettings]] = {"dqn": DQN, "ppo": PPO}
