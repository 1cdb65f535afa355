"""Presets of environments with tasks, for PPO (RL²) and SAC with memory. Measured returns: `docs/learning.md`."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from envfleet.settings.presets import Preset

__all__ = ["OF_CLASS", "PRESETS", "for_env"]

_LONGEST_SEQUENCE = 200  # steps
_SHORTEST_SEQUENCE = 50  # if trials are longer: a memory learns little from shorter ones

# A rollout is five trials of each environment. The low lambda is that of the RL² paper (0.3). It is clearly better
# here, because later rewards depend little on a single pull.
_BANDIT = Preset(
    "bandit",
    {
        "n_envs": 128,
        "rollout_steps": 50,
        "sequence_length": 50,
        "minibatch_size": 1600,
        "epochs": 4,
        "gamma": 0.99,
        "lam": 0.3,
        "learning_rate": 2e-3,
        "learning_rate_schedule": "linear",
        "entropy_coefficient": 0.0,
        "memory_size": 64,
        "steps": 1_000_000,
    },
    for_memory=True,
)
# With 100 pulls, a gamma of 0.95 instead of 0.99 gave a return of 73 instead of 65 after three million steps, and of
# 77.6 instead of 76.4 after 20 million (one seed each).
_LONG_BANDIT = replace(_BANDIT, values={**_BANDIT.values, "gamma": 0.95, "minibatch_size": 3200})
_LONG_TRIAL = 50  # pulls
# A rollout is one trial of each environment. With a rate of 1e-3 and raw rewards, a run on PointRobotSparse fell from a
# return of 41 to 11 after two million steps; with these values it kept rising (one seed each).
_ROBOT = Preset(
    "point robot",
    {
        "n_envs": 64,
        "rollout_steps": 120,
        "sequence_length": 120,
        "minibatch_size": 1920,
        "epochs": 4,
        "gamma": 0.97,
        "lam": 0.9,
        "learning_rate": 7e-4,
        "learning_rate_schedule": "linear",
        "normalise_rewards": True,
        "entropy_coefficient": 0.001,
        "memory_size": 64,
        "steps": 10_000_000,
    },
    for_memory=True,
)
# Learning starts slowly: the return does not rise until the memory can tell 50 pairs of state and action apart. With
# other values, two things went wrong before that (short runs, one seed each). With lambda 0.3 and gamma 0.99 the critic
# needs 600,000 steps to follow the return of a trial, and without an entropy bonus the policy is nearly deterministic
# by then (entropy 0.5 of 1.6). With raw rewards, the loss of the critic dominates all other terms. With a wide first
# layer and a high rate, learning starts sooner. With these values the critic follows after 200,000 steps, and the
# return leaves chance (100) after 600,000: 108 after 820,000 (training tasks, mean of 1,000 trials). The whole budget
# has not been run yet.
_TABULAR = Preset(
    "tabular MDP",
    {
        "n_envs": 128,
        "rollout_steps": 100,
        "sequence_length": 100,
        "minibatch_size": 3200,
        "epochs": 4,
        "gamma": 0.97,
        "lam": 0.8,
        "learning_rate": 2e-3,
        "learning_rate_schedule": "linear",
        "normalise_rewards": True,
        "entropy_coefficient": 0.01,
        "hidden": (128,),
        "memory_size": 128,
        "steps": 30_000_000,
    },
    for_memory=True,
)
# The values of VariBAD's RL² on HalfCheetahVel. No run of this project has confirmed them yet.
_WALKER = Preset(
    "walking robot with tasks",
    {
        "n_envs": 16,
        "rollout_steps": 400,
        "sequence_length": 200,
        "minibatch_size": 1600,
        "epochs": 2,
        "gamma": 0.97,
        "lam": 0.9,
        "learning_rate": 7e-4,
        "clip_range": 0.1,
        "entropy_coefficient": 0.01,
        "normalise_rewards": True,
        "normalise_observations": True,
        "memory_size": 128,
        "steps": 10_000_000,
    },
    for_memory=True,
)
# Like the walking robots, with longer episodes. No run of this project has confirmed them yet.
_METAWORLD = Preset(
    "Meta-World", {**_WALKER.values, "rollout_steps": 1000, "sequence_length": 250, "gamma": 0.99}, for_memory=True
)
# SAC: sizes and discount factors are those of pomdp-baselines (Ni et al. 2022), which learns the same tasks with larger
# budgets. A rollout is one trial of each environment. Gradients are clipped, because without it the values of recurrent
# critics are known to explode. No run of this project has confirmed these presets yet.
_SAC: dict[str, Any] = {"n_envs": 8, "minibatch_size": 32, "hidden": (128, 128), "max_gradient_norm": 10.0}
_SAC_WIND = Preset(
    "SAC, wind",
    {
        **_SAC,
        "rollout_steps": 75,
        "sampled_seq_len": 75,
        "learning_starts": 7_500,
        "updates_per_step": 0.33,
        "gamma": 0.9,
        "memory_size": 64,
        "action_embedding": 8,
        "reward_embedding": 0,
        "steps": 300_000,
    },
    for_memory=True,
)
_SAC_ROBOT = Preset(
    "SAC, point robot",
    {
        **_SAC,
        "rollout_steps": 120,
        "sampled_seq_len": 64,
        "learning_starts": 24_000,
        "updates_per_step": 0.17,
        "gamma": 0.9,
        "action_embedding": 0,
        "reward_embedding": 8,
        "steps": 600_000,
    },
    for_memory=True,
)
_SAC_WALKER = Preset(
    "SAC, walking robot with tasks",
    {
        **_SAC,
        "hidden": (128, 128, 128),
        "rollout_steps": 400,
        "sampled_seq_len": 64,
        "learning_starts": 100_000,
        "updates_per_step": 0.02,
        "steps": 2_000_000,
    },
    for_memory=True,
)
PRESETS = {"ppo": _WALKER, "sac": _SAC_WALKER}  # by algorithm
OF_CLASS = {  # presets of single environments, which replace those of the family
    "Bandit": {"ppo": _BANDIT},
    "MetaWorld": {"ppo": _METAWORLD},
    "TabularMDP": {"ppo": _TABULAR},
    "PointRobot": {"ppo": _ROBOT, "sac": _SAC_ROBOT},
    "PointRobotSparse": {"ppo": _ROBOT, "sac": _SAC_ROBOT},
    "Wind": {"ppo": _ROBOT, "sac": _SAC_WIND},
}


def for_env(presets: dict[str, Preset], env: Any) -> dict[str, Preset]:
    """Fit PPO's preset to an environment: rollouts of whole trials, and sequences of a whole trial if possible.

    The length of a sequence has to divide that of a rollout. If a long trial has no divisor that is useful for this,
    such as 211, rollouts are a few steps longer than trials. They need not begin with a trial: memories are kept.
    """
    horizon, settings = getattr(env, "horizon", None), getattr(env, "settings", None)
    if "ppo" not in presets or horizon is None or settings is None:
        return presets
    preset, trial = presets["ppo"], horizon * settings.episodes_per_task
    if preset is _BANDIT and trial > _LONG_TRIAL:
        preset = _LONG_BANDIT
    steps = trial * max(1, preset.values["rollout_steps"] // trial)
    longest = min(_LONGEST_SEQUENCE, steps)
    sequence = next(length for length in range(longest, 0, -1) if steps % length == 0)
    if sequence < min(_SHORTEST_SEQUENCE, steps):
        pieces = math.ceil(steps / longest)
        sequence = math.ceil(steps / pieces)
        steps = pieces * sequence
    fitted = {**preset.values, "rollout_steps": steps, "sequence_length": sequence}
    return {**presets, "ppo": replace(preset, values=fitted)}
