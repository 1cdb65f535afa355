"""Presets of PPO: proven settings by environment family, and by name.

The values for classic control and MuJoCo start from the RL Zoo of Stable-Baselines3 and from CleanRL, those for images
from the Atari settings of the PPO paper. Learning curves: `docs/learning.md`.
"""

from __future__ import annotations

from collections.abc import Callable

from gymnasium import spaces

from envfleet.algorithms.env_facts import EnvFacts
from envfleet.settings.presets import Preset

__all__ = ["NAMED", "family_preset"]

_CLASSIC = Preset(
    "classic control",
    {
        "n_envs": 8,
        "rollout_steps": 32,
        "minibatch_size": 256,
        "epochs": 20,
        "gamma": 0.98,
        "lam": 0.8,
        "learning_rate": 1e-3,
        "learning_rate_schedule": "linear",
        "clip_range_schedule": "linear",
    },
)
_CLASSIC_SPARSE = Preset(
    "classic control, sparse reward",
    {
        "n_envs": 16,
        "rollout_steps": 256,
        "minibatch_size": 256,
        "epochs": 8,
        "gamma": 0.99,
        "lam": 0.94,
        "learning_rate": 1e-3,
        "learning_rate_schedule": "linear",
        "normalise_observations": True,
        # Without it, the value loss of returns around -500 dominates the clipped gradient.
        "normalise_rewards": True,
    },
)
_CLASSIC_CONTINUOUS = Preset(
    "classic control, continuous actions",
    {
        "n_envs": 8,
        "rollout_steps": 256,
        "minibatch_size": 256,
        "epochs": 10,
        "gamma": 0.9,
        "lam": 0.95,
        "learning_rate": 1e-3,
    },
)
_BOX2D = Preset(
    "Box2D",
    {
        "n_envs": 16,
        "rollout_steps": 512,
        "minibatch_size": 128,
        "epochs": 6,
        "gamma": 0.999,
        "lam": 0.98,
        "entropy_coefficient": 0.01,
        "learning_rate": 5e-4,
        "learning_rate_schedule": "linear",
        "steps": 1_000_000,
    },
)
_MUJOCO = Preset(
    "MuJoCo",
    {
        "n_envs": 8,
        "rollout_steps": 256,
        "minibatch_size": 64,
        "epochs": 10,
        "gamma": 0.99,
        "lam": 0.95,
        "learning_rate": 3e-4,
        "learning_rate_schedule": "linear",
        "normalise_observations": True,
        "normalise_rewards": True,
        "steps": 1_000_000,
    },
)
_IMAGES = Preset(
    "images",
    {
        "n_envs": 32,
        "rollout_steps": 128,
        "minibatch_size": 1024,
        "epochs": 3,
        "gamma": 0.99,
        "lam": 0.95,
        "entropy_coefficient": 0.01,
        "learning_rate": 2.5e-4,
        "learning_rate_schedule": "linear",
        "normalise_rewards": True,
        "steps": 1_000_000,
    },
)
_GENERAL = Preset(
    "general",
    {"n_envs": 16, "rollout_steps": 128, "minibatch_size": 128, "epochs": 8, "entropy_coefficient": 0.01},
)
_MEMORY = Preset(
    "with memory",
    {
        "n_envs": 16,
        "rollout_steps": 128,
        "sequence_length": 32,
        "minibatch_size": 512,
        "epochs": 4,
        "entropy_coefficient": 0.01,
        "learning_rate": 1e-3,
    },
)

# PPO works rollout by rollout: few envs save memory; many envs and few epochs give throughput.
NAMED: dict[str, Callable[[], Preset]] = {
    "low-memory": lambda: Preset("low-memory", {"workers": 2, "n_envs": 8}),
    "max-throughput": lambda: Preset(
        "max-throughput",
        {
            "workers": 8,
            "n_envs": 128,
            "group_size": 16,
            "minibatch_size": 8192,
            "epochs": 2,
            "schedule": "overlap",
        },
    ),
}


def family_preset(env: EnvFacts, *, memory: bool) -> Preset:
    """The preset of the environment's family, for a policy with or without memory."""
    if (own := env.own_preset("ppo", memory=memory)) is not None:
        return own
    if memory:
        return _MEMORY
    if ".mujoco" in env.entry_point:
        return _MUJOCO
    if ".box2d" in env.entry_point:
        return _BOX2D
    if env.has_image:
        return _IMAGES
    if ".classic_control" in env.entry_point:
        if isinstance(env.action_space, spaces.Box):
            return _CLASSIC_CONTINUOUS
        return _CLASSIC if "cartpole" in env.entry_point else _CLASSIC_SPARSE
    return _GENERAL
