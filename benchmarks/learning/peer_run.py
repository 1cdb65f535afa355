"""Train Stable-Baselines3 on one task, in its own virtual environment; print the same JSON as `our_run`.

The task's settings are translated to Stable-Baselines3's names. For PPO, `VecNormalize` normalises observations and
rewards.
"""

from __future__ import annotations

import argparse
import json
from statistics import fmean
from time import monotonic
from typing import Any

import torch
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecNormalize

from benchmarks.learning.tasks import TASKS, Task

EVALUATION_SEED = 10_000  # far from those of the training environments


class Curve(BaseCallback):
    """Record the episodes that end in each rollout: (steps so far, their mean return, their number)."""

    def __init__(self) -> None:
        super().__init__()
        self.points: list[tuple[int, float, int]] = []
        self._returns: list[float] = []

    def _on_step(self) -> bool:
        self._returns += [float(info["episode"]["r"]) for info in self.locals["infos"] if "episode" in info]
        return True

    def _on_rollout_end(self) -> None:
        if self._returns:
            self.points.append((self.num_timesteps, round(fmean(self._returns), 2), len(self._returns)))
            self._returns.clear()


def ppo_arguments(settings: dict[str, Any]) -> dict[str, Any]:
    """Translate our settings to the arguments of Stable-Baselines3's PPO."""
    return {
        "n_steps": settings["rollout_steps"],
        "batch_size": settings["minibatch_size"],
        "n_epochs": settings["epochs"],
        "gamma": settings["gamma"],
        "gae_lambda": settings["lam"],
        "learning_rate": settings["learning_rate"],
        "clip_range": settings["clip_range"],
        "clip_range_vf": settings.get("clip_range_values"),
        "ent_coef": settings["entropy_coefficient"],
        "vf_coef": settings["value_coefficient"],
        "max_grad_norm": settings["max_gradient_norm"],
        "device": "cpu",
    }


def ppo(task: Task, seed: int) -> tuple[Any, Any]:
    """Build the model with the task's settings, and its vector env."""
    settings = task.settings
    vector = VecNormalize(make_vec_env(task.env, n_envs=settings["n_envs"], seed=seed), gamma=settings["gamma"])
    model = PPO(
        "MlpPolicy",
        vector,
        policy_kwargs={"net_arch": {"pi": [64, 64], "vf": [64, 64]}, "activation_fn": torch.nn.Tanh},
        seed=seed,
        **ppo_arguments(settings),
    )
    return model, vector


def dqn(task: Task, seed: int) -> tuple[Any, Any]:
    """Build the same for DQN. `train_freq` counts vector env steps, `target_update_interval` single env steps."""
    settings = task.settings
    vector = make_vec_env(task.env, n_envs=settings["n_envs"], seed=seed)
    steps_per_update = settings["train_frequency"] // settings["gradient_steps"]
    model = DQN(
        "MlpPolicy",
        vector,
        learning_rate=settings["learning_rate"],
        buffer_size=settings["replay_size"],
        learning_starts=settings["learning_starts"],
        batch_size=settings["minibatch_size"],
        gamma=settings["gamma"],
        train_freq=settings["train_frequency"] // settings["n_envs"],
        gradient_steps=settings["gradient_steps"],
        target_update_interval=settings["target_update_frequency"] * steps_per_update,
        exploration_fraction=settings["exploration_fraction"],
        exploration_initial_eps=settings["initial_epsilon"],
        exploration_final_eps=settings["epsilon_min"],
        max_grad_norm=settings["max_gradient_norm"],
        policy_kwargs={"net_arch": list(settings["hidden"]), "activation_fn": torch.nn.ReLU},
        seed=seed,
        device="cpu",
    )
    return model, vector


def sac(task: Task, seed: int) -> tuple[Any, Any]:
    """Build the same for SAC, with as many updates as collected steps."""
    settings = task.settings
    vector = make_vec_env(task.env, n_envs=settings["n_envs"], seed=seed)
    assert settings["updates_per_step"] == 1.0 and settings["rollout_steps"] == 1
    model = SAC(
        "MlpPolicy",
        vector,
        learning_rate=settings["learning_rate"],
        buffer_size=settings["replay_size"],
        learning_starts=settings["learning_starts"],
        batch_size=settings["minibatch_size"],
        tau=settings["target_rate"],
        gamma=settings["gamma"],
        train_freq=1,
        gradient_steps=-1,
        policy_kwargs={"net_arch": list(settings["hidden"])},
        seed=seed,
        device="cpu",
    )
    return model, vector


def learn(task: Task, seed: int) -> dict[str, Any]:
    """Train with the task's settings, then evaluate the final policy."""
    settings = task.settings
    model, vector = {"ppo": ppo, "dqn": dqn, "sac": sac}[task.algorithm](task, seed)
    curve, began = Curve(), monotonic()
    model.learn(settings["steps"], callback=curve)
    minutes = (monotonic() - began) / 60
    if isinstance(vector, VecNormalize):
        vector.training, vector.norm_reward = False, False
    vector.seed(EVALUATION_SEED)
    returns, _ = evaluate_policy(model, vector, n_eval_episodes=task.evaluation_episodes, return_episode_rewards=True)
    mean = fmean(returns)
    return {
        "seed": seed,
        "steps": model.num_timesteps,
        "minutes": minutes,
        "curve": curve.points,
        "evaluation": {
            "mean": mean,
            "std": fmean((value - mean) ** 2 for value in returns) ** 0.5,
            "episodes": len(returns),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=[name for name, task in TASKS.items() if task.beside_peer])
    parser.add_argument("--seed", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(json.dumps(learn(TASKS[options.task], options.seed)))


if __name__ == "__main__":
    main()
