"""Presets of Procgen. Learning curves: `docs/learning.md`."""

from __future__ import annotations

from envfleet.settings.presets import Preset

__all__ = ["NAMED", "PRESETS"]

# The settings of openai/train-procgen, and the levels it trains on with a small budget.
_PPO = Preset(
    "Procgen",
    {
        "n_envs": 64,
        "rollout_steps": 256,
        "minibatch_size": 2048,
        "epochs": 3,
        "gamma": 0.999,
        "lam": 0.95,
        "entropy_coefficient": 0.01,
        "learning_rate": 5e-4,
        "clip_range_values": 0.2,
        "normalise_rewards": True,
        "network": "impala",
        "eval_sampled": True,  # as in all published results
        "steps": 1_000_000,
    },
    {"distribution_mode": "easy", "num_levels": 200},
)
PRESETS = {"ppo": _PPO}  # by algorithm
NAMED = {
    "procgen": Preset("procgen", _PPO.values, _PPO.env),
    "procgen-nature": Preset("procgen-nature", {**_PPO.values, "network": "nature"}, _PPO.env),
}
