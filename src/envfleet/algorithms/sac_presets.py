"""Presets of SAC, by environment family and by name. `docs/sac.md` says which of them runs have confirmed."""

from __future__ import annotations

from collections.abc import Callable

from gymnasium import spaces

from envfleet.algorithms.env_facts import EnvFacts
from envfleet.settings.presets import Preset

__all__ = ["family_preset", "named_presets"]

# The learning rate of Stable-Baselines3's RL Zoo for Pendulum.
_CLASSIC_CONTINUOUS = Preset(
    "SAC, classic control, continuous actions",
    {"n_envs": 4, "rollout_steps": 2, "learning_rate": 1e-3, "learning_starts": 400, "steps": 20_000},
)
_CLASSIC = Preset(
    "SAC, classic control",
    {
        "n_envs": 4,
        "rollout_steps": 1,
        "learning_rate": 1e-3,
        "max_gradient_norm": 1.0,
        "minibatch_size": 128,
        "hidden": (128, 128),
        "steps": 50_000,
    },
)
_MUJOCO = Preset(
    "SAC, MuJoCo", {"n_envs": 8, "rollout_steps": 4, "learning_starts": 10_000, "steps": 1_000_000}
)  # as in the RL Zoo
_IMAGES = Preset(
    "SAC, images",
    {"n_envs": 8, "rollout_steps": 4, "replay_size": 100_000, "updates_per_step": 0.25, "minibatch_size": 64},
)
_MEMORY = Preset(
    "SAC with memory",
    {
        "n_envs": 8,
        "rollout_steps": 32,
        "minibatch_size": 32,
        "updates_per_step": 0.2,
        "hidden": (128, 128),
        "max_gradient_norm": 10.0,
        "learning_starts": 5_000,
    },
)
_GENERAL = Preset("SAC, general", {"n_envs": 8, "rollout_steps": 4})

# CrossQ (Bhatt et al. 2024): learns more from each update. The authors' rates and frequencies, but smaller critics, and
# a plain actor: theirs is normalised too.
_CROSSQ = {"updates_per_step": 1.0, "batch_norm": True, "learning_rate": 1e-3, "adam_beta": 0.5, "actor_frequency": 3}
# DroQ (Hiraoka et al. 2022): layer normalisation and a little dropout keep many updates per step stable.
_DROQ = {"updates_per_step": 4.0, "layer_norm": True, "dropout": 0.01}


def named_presets(*, layer_norm: bool) -> dict[str, Callable[[], Preset]]:
    """The named presets, for critics with layer normalisation or with batch normalisation."""
    efficient = {"rollout_steps": 1, "learning_starts": 5_000, **(_DROQ if layer_norm else _CROSSQ)}
    return {
        "sample-efficient": lambda: Preset("sample-efficient", efficient),
        "low-memory": lambda: Preset("low-memory", {"n_envs": 2, "replay_size": 50_000}),
        "max-throughput": lambda: Preset(
            "max-throughput", {"n_envs": 64, "schedule": "overlap", "updates_per_step": 0.125, "minibatch_size": 512}
        ),
    }


def family_preset(env: EnvFacts, *, memory: bool) -> Preset:
    """The preset of the environment's family, for a policy with or without memory."""
    if (own := env.own_preset("sac", memory=memory)) is not None:
        return own
    if memory:
        return _MEMORY
    if ".mujoco" in env.entry_point:
        return _MUJOCO
    if env.has_image:
        return _IMAGES
    if ".classic_control" in env.entry_point:
        return _CLASSIC_CONTINUOUS if isinstance(env.action_space, spaces.Box) else _CLASSIC
    return _GENERAL
