"""Presets of DQN: proven settings by environment family. Learning curves: `docs/learning.md`."""

from __future__ import annotations

from envfleet.algorithms.env_facts import EnvFacts
from envfleet.settings.presets import Preset

__all__ = ["family_preset"]

_CLASSIC = Preset(
    "DQN, classic control",
    {
        "n_envs": 8,
        "rollout_steps": 32,
        "train_frequency": 2,
        "minibatch_size": 64,
        "learning_rate": 1e-3,
        "learning_rate_schedule": "linear",
        "hidden": (128, 128),
        "target_update_frequency": 128,
        "exploration_fraction": 0.16,
        "steps": 50_000,
    },
)
_IMAGES = Preset(
    "DQN, images",
    {
        "n_envs": 8,
        "rollout_steps": 4,
        "train_frequency": 4,
        "minibatch_size": 32,
        "learning_rate": 1e-4,
        "learning_starts": 10_000,
        "target_update_frequency": 1_000,
        "exploration_fraction": 0.1,
        "epsilon_min": 0.01,
        "steps": 1_000_000,
    },
)
_GENERAL = Preset("DQN, general", {"n_envs": 8, "train_frequency": 4})


def family_preset(env: EnvFacts) -> Preset:
    """The preset of the environment's family."""
    if (own := env.own_preset("dqn")) is not None:
        return own
    if env.has_image:
        return _IMAGES
    return _CLASSIC if ".classic_control" in env.entry_point else _GENERAL
