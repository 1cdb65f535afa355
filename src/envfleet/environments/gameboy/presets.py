"""Presets of the Game Boy. Learning curves: `docs/gameboy.md`."""

from __future__ import annotations

from envfleet.settings.presets import Preset

__all__ = ["PRESETS"]

_FEATURES = Preset(
    "Game Boy, features",
    {
        "n_envs": 16,
        "rollout_steps": 128,
        "minibatch_size": 256,
        "epochs": 8,
        # Getting closer pays at once, so looking more than 50 steps ahead gains little.
        "gamma": 0.98,
        "lam": 0.9,
        "entropy_coefficient": 0.01,
        "learning_rate": 1e-3,
        "learning_rate_schedule": "linear",
        "hidden": (128, 128),
        # The best action can run against a wall forever; a sampled action gets away.
        "eval_sampled": True,
        "steps": 800_000,
    },
    for_images=False,  # with pixels, the preset for images applies
)
PRESETS = {"ppo": _FEATURES}  # by algorithm
