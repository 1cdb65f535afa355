"""Presets: proven defaults for settings that the user did not give, by environment family or by name.

The values for classic control and MuJoCo start from the RL Zoo of Stable-Baselines3 and from CleanRL, those for images
from the Atari settings of the PPO paper. Learning curves: `docs/learning.md`. Built-in environments declare their own
presets (`envfleet.environments.presets`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gymnasium import spaces

from envfleet.algorithms.settings import DQN, PPO, TrainingSettings
from envfleet.environments.presets import named_presets
from envfleet.machine import usable_cores
from envfleet.settings.declaration import kinds_of
from envfleet.settings.presets import Preset

__all__ = ["NAMED", "named_preset", "preset_for"]


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


def preset_for(
    settings: TrainingSettings,
    entry_point: str,
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    declared: Mapping[str, Preset],
) -> Preset:
    """The preset of the environment's family.

    `entry_point` is its Gymnasium entry point. `declared` are the presets that the environment declares, by algorithm.
    """
    own = declared.get(settings.algorithm)
    if own is not None and not own.for_images and _has_image(observation_space):
        own = None
    if isinstance(settings, DQN):
        preset = own or _dqn_preset(entry_point, observation_space)
        return preset if settings.policy is None else preset.without("network")
    assert isinstance(settings, PPO)
    if settings.memory != "none" and not (own is not None and own.for_memory):
        return Preset("with memory", _MEMORY)
    if own is not None:
        return own
    if ".mujoco" in entry_point:
        return _MUJOCO
    if ".box2d" in entry_point:
        return _BOX2D
    if _has_image(observation_space):
        return _IMAGES
    if ".classic_control" in entry_point:
        if isinstance(action_space, spaces.Box):
            return _CLASSIC_CONTINUOUS
        return _CLASSIC if "cartpole" in entry_point else _CLASSIC_SPARSE
    return _GENERAL


_DQN_CLASSIC = Preset(
    "DQN, classic control",
    {
        "n_envs": 8,
        "rollout_steps": 32,
        "train_frequency": 2,
        "minibatch_size": 64,
        "learning_rate": 2.3e-3,
        "learning_rate_schedule": "linear",
        "hidden": (128, 128),
        "target_update_frequency": 128,
        "exploration_fraction": 0.16,
        "steps": 50_000,
    },
)
_DQN_IMAGES = Preset(
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
_DQN_GENERAL = Preset("DQN, general", {"n_envs": 8, "train_frequency": 4})


def _dqn_preset(entry_point: str, observation_space: spaces.Space[Any]) -> Preset:
    if _has_image(observation_space):
        return _DQN_IMAGES
    return _DQN_CLASSIC if ".classic_control" in entry_point else _DQN_GENERAL


# ---- by name, over the preset of the family


def _auto_scale() -> Preset:
    cores = usable_cores()
    values = {"n_envs": min(8, cores), "workers": max(1, cores // 2), "backend": "threads"}
    return Preset("auto-scale", values)


NAMED: dict[str, Callable[[], Preset]] = {
    "auto-scale": _auto_scale,
    "low-memory": lambda: Preset(
        "low-memory", {"n_envs": 2, "replay_size": 10_000, "minibatch_size": 16}, {"grid_size": 20}
    ),
    "max-throughput": lambda: Preset(
        "max-throughput", {"n_envs": 64, "schedule": "overlap", "train_frequency": 16, "minibatch_size": 128}
    ),
    "faster": lambda: Preset("faster", {"train_frequency": 2}, {"steps_per_episode": 30}),
    "debug": lambda: Preset("debug", {"n_envs": 1, "backend": "sequential", "verbose": True}),
}


# PPO works rollout by rollout: few envs save memory; many envs and few epochs give throughput.
_PPO_NAMED: dict[str, Callable[[], Preset]] = {
    "low-memory": lambda: Preset("low-memory", {"workers": 2, "n_envs": 8}),
    "max-throughput": lambda: Preset(
        "max-throughput", {"workers": 8, "n_envs": 128, "minibatch_size": 8192, "epochs": 2, "schedule": "overlap"}
    ),
}


def named_preset(name: str, kind: type[TrainingSettings]) -> Preset:
    """The named preset, reduced to settings that the algorithm has."""
    named = {**NAMED, **_PPO_NAMED} if kind is PPO else NAMED
    preset = named[name]() if name in named else named_presets()[name]
    return Preset(name, {key: value for key, value in preset.values.items() if key in kinds_of(kind)}, preset.env)


_MEMORY = {
    "n_envs": 16,
    "rollout_steps": 128,
    "sequence_length": 32,
    "minibatch_size": 512,
    "epochs": 4,
    "entropy_coefficient": 0.01,
    "learning_rate": 1e-3,
}


def _has_image(space: spaces.Space[Any]) -> bool:
    if isinstance(space, spaces.Dict):
        return any(_has_image(part) for part in space.spaces.values())
    if isinstance(space, spaces.Tuple):
        return any(_has_image(part) for part in space.spaces)
    return isinstance(space, spaces.Box) and len(space.shape) == 3 and min(space.shape[:2]) >= 32
