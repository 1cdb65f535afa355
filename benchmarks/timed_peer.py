"""Train Stable-Baselines3's PPO on Procgen for a fixed time and print the progress as JSON.

It runs in that library's virtual environment and calls `learn` with the settings of one of our runs, on `DummyVecEnv`
or `SubprocVecEnv`. The clock starts with `learn` and is read after every rollout and update. A rollout or update that
is unfinished at the time limit does not count.
"""

from __future__ import annotations

import argparse
import json
from collections import deque
from statistics import fmean
from time import perf_counter
from typing import Any

from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize

from benchmarks.learning.peer_run import ppo_arguments
from envfleet.environments.procgen.environment import ProcgenEnv

RECENT = 100  # episodes over which the return is averaged


class Course(BaseCallback):
    """Record every update: seconds, steps, episodes, and the mean return of the last ones."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.points: list[dict[str, float | None]] = []
        self._seconds, self._episodes = seconds, 0
        self._returns: deque[float] = deque(maxlen=RECENT)

    def _on_training_start(self) -> None:
        self._began = perf_counter()

    def _on_step(self) -> bool:
        ended = [float(info["episode"]["r"]) for info in self.locals["infos"] if "episode" in info]
        self._returns.extend(ended)
        self._episodes += len(ended)
        return self._spent < self._seconds

    def _on_rollout_start(self) -> None:
        """Record a point. This runs after every update except the last, which ends after the time limit anyway."""
        if self.num_timesteps and self._spent <= self._seconds:
            self.points.append(
                {
                    "seconds": self._spent,
                    "steps": self.num_timesteps,
                    "episodes": self._episodes,
                    "return": fmean(self._returns) if self._returns else None,
                }
            )

    @property
    def _spent(self) -> float:
        return perf_counter() - self._began


def train(game: str, settings: dict[str, Any], vector: str, seed: int, seconds: float) -> list[dict[str, float | None]]:
    envs = make_vec_env(
        lambda: ProcgenEnv(game, **settings["env_kwargs"]),
        n_envs=settings["n_envs"],
        seed=seed,
        vec_env_cls={"dummy": DummyVecEnv, "subproc": SubprocVecEnv}[vector],
    )
    if settings["normalise_rewards"]:
        envs = VecNormalize(envs, norm_obs=False, gamma=settings["gamma"])
    model = PPO("CnnPolicy", envs, seed=seed, **ppo_arguments(settings))
    course = Course(seconds)
    model.learn(10**9, callback=course)
    envs.close()
    return course.points


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--game", required=True)
    parser.add_argument("--settings", type=json.loads, required=True, help="settings of one of our runs, as JSON")
    parser.add_argument("--vector", choices=("dummy", "subproc"), required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    print(json.dumps(train(options.game, options.settings, options.vector, options.seed, options.seconds)))


if __name__ == "__main__":
    main()
