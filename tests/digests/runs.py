"""Short runs with pinned results; each covers a part of the mathematics that the others do not."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import gymnasium
import numpy as np
from gymnasium.wrappers import FrameStackObservation

import envfleet
from envfleet.algorithms.settings import DQN, PPO, SAC, TrainingSettings
from tests.digests.fingerprint import LENGTH
from tests.training.old_runs import copy_of
from tests.training.running import weights

__all__ = ["RUNS", "digest_of"]

BOTH: dict[str, Any] = {"env": "CartPole-v1", "hidden": (16,), "seed": 5, "backend": "sequential", "eval_every": 0}
OF_PPO: dict[str, Any] = {
    **BOTH, "n_envs": 12, "rollout_steps": 16, "steps": 12 * 16 * 3, "minibatch_size": 96, "epochs": 3,
    "sequence_length": 8, "memory_size": 16, "learning_rate": 0.01,  # high enough for ratios to be clipped
}  # fmt: skip
OF_DQN: dict[str, Any] = {
    **BOTH, "n_envs": 8, "rollout_steps": 8, "steps": 512, "learning_starts": 64, "replay_size": 320,
    "minibatch_size": 32, "target_update_frequency": 20,
}  # fmt: skip
OF_SAC: dict[str, Any] = {
    **BOTH, "env": "Pendulum-v1", "n_envs": 8, "rollout_steps": 8, "steps": 512, "learning_starts": 128,
    "replay_size": 320, "minibatch_size": 32, "updates_per_step": 0.25, "hidden": (16, 16),
}  # fmt: skip
OF_MEMORY: dict[str, Any] = {
    "env": "tests.training.sac_worlds:RememberNumber", "memory_size": 8, "observation_embedding": 4,
    "action_embedding": 2, "reward_embedding": 2, "sampled_seq_len": 4,
}  # fmt: skip
FEW_PICTURES: dict[str, Any] = {"n_envs": 4, "rollout_steps": 8, "minibatch_size": 16}
FAST: dict[str, Any] = {"learning_rate": 2.3e-3}  # not that of the preset, so that a new preset changes no digest
LINEAR: dict[str, Any] = {"learning_rate_schedule": "linear", "normalise_observations": True}


def stacked_cartpole() -> gymnasium.Env[Any, Any]:
    return FrameStackObservation(gymnasium.make("CartPole-v1"), 4)


def always_ahead(observations: Any) -> Any:
    return np.ones(len(observations), np.int64)


def _ppo(**changes: Any) -> PPO:
    return PPO(**{**OF_PPO, **changes})


def _dqn(**changes: Any) -> DQN:
    return DQN(**{**OF_DQN, **changes})


def _sac(**changes: Any) -> SAC:
    return SAC(**{**OF_SAC, **changes})


SETTINGS: dict[str, TrainingSettings] = {
    "ppo": _ppo(),
    "ppo-central": _ppo(acting="central"),
    "ppo-overlap": _ppo(schedule="overlap"),
    "ppo-two-threads": _ppo(learner_threads=2),
    "ppo-gru": _ppo(env="tests.training.worlds:RememberCue", memory="gru"),
    "ppo-lstm-overlap": _ppo(memory="lstm", schedule="overlap", acting="central"),
    "ppo-images": _ppo(env="tests.training.picture_worlds:Quarters", **FEW_PICTURES, steps=4 * 8 * 3),
    "ppo-impala": _ppo(env="tests.training.picture_worlds:Quarters", network="impala", **FEW_PICTURES, steps=4 * 8 * 2),
    "ppo-masks": _ppo(env="tests.training.worlds:Masked", entropy_coefficient=0.01),
    "ppo-dict": _ppo(env="tests.training.worlds:Nested"),
    "ppo-continuous": _ppo(env="Pendulum-v1", normalise_rewards=True, clip_range_schedule="linear", **LINEAR),
    "ppo-tanh": _ppo(
        env="Pendulum-v1", bounds="tanh", shared=True, activation="relu", clip_range_values=0.2, target_kl=0.01
    ),
    "dqn": _dqn(**FAST),
    "dqn-noisy-overlap": _dqn(**FAST, noisy=True, schedule="overlap"),
    "dqn-prioritised": _dqn(**FAST, prioritised=True, target_rate=0.05, loss="mse", n_step=1, double=False, **LINEAR),
    "dqn-frames": _dqn(**FAST, env=stacked_cartpole, prioritised=True, acting="central"),
    "dqn-images": _dqn(env="tests.training.dqn_worlds:Picture", env_kwargs={"size": 36}, steps=192, minibatch_size=8),
    "dqn-masks": _dqn(env="tests.training.dqn_worlds:Masked", dueling=False, epsilon_decay=0.98),
    "dqn-demonstrations": _dqn(
        env="tests.training.dqn_worlds:Chain", demonstrations=always_ahead, demonstration_steps=100, pretrain_steps=10,
        margin=0.5,
    ),
    "sac": _sac(),
    "sac-two-threads": _sac(learner_threads=2, max_gradient_norm=1.0),
    "sac-efficient-overlap": _sac(
        schedule="overlap", layer_norm=True, dropout=0.05, actor_frequency=2, n_step=3, prioritised=True, **LINEAR
    ),
    "sac-batch-norm": _sac(batch_norm=True, adam_beta=0.5, actor_frequency=3),
    "sac-masks": _sac(env="tests.training.worlds:Masked", acting="central"),
    "sac-gru": _sac(**OF_MEMORY, memory="gru", learner_threads=2, memory_learning_rate=1e-4),
    "sac-lstm-overlap": _sac(**OF_MEMORY, memory="lstm", architecture="memory-markov", schedule="overlap", burn_in=1),
}  # fmt: skip


def _train(settings: TrainingSettings, folder: Path) -> None:
    # Skip the check for exact resume: other tests cover it, and it takes two processes per run.
    with mock.patch("envfleet.training.exactness.why_inexact", return_value=None):
        envfleet.train(settings.but(output_dir=str(folder), quiet=True))


def _resume_old(name: str, folder: Path) -> None:
    copy_of(name, folder)
    envfleet.resume(folder, quiet=True)


RUNS: dict[str, Callable[[Path], None]] = {
    **{name: functools.partial(_train, settings) for name, settings in SETTINGS.items()},
    **{f"resumed-{name}": functools.partial(_resume_old, name) for name in ("ppo", "dqn")},
}


def digest_of(name: str, folder: Path) -> str:
    """Train the run of this name into `folder`; return a digest of its final weights."""
    RUNS[name](folder)
    return hashlib.sha256(weights(folder)).hexdigest()[:LENGTH]
