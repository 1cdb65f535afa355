"""Presets of the wildfire environment. Learning curves: `docs/wildfire.md`."""

from __future__ import annotations

from envfleet.settings.presets import Preset

__all__ = ["PRESETS"]

# A break that stops fires pays at once, so only the next reward is learned (gamma 0); the rewards of later breaks would
# be noise. Many fires per reward make each step more informative, and cost less than learning from more steps.
_DQN = Preset(
    "DQN, wildfire",
    {
        "n_envs": 8,
        "rollout_steps": 16,
        "schedule": "overlap",
        "replay_size": 30_000,
        "learning_starts": 2_000,
        "minibatch_size": 64,
        "train_frequency": 16,
        "learning_rate": 2e-3,
        "learning_rate_schedule": "linear",
        "gamma": 0.0,
        "n_step": 1,
        "double": False,
        "dueling": False,
        "loss": "mse",
        "network": "cells",
        "hidden": (16, 16, 16, 16),
        "exploration_fraction": 0.4,
        "epsilon_min": 0.1,
        "steps": 50_000,
    },
    {"memory_simulations": 64, "fire_channels": True},
)
PRESETS = {"dqn": _DQN}  # by algorithm
