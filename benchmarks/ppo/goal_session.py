"""Session that trains CartPole-v1 until the last 100 training episodes have a mean return of 475.

One run is one measurement, without imports and without building networks and environments. Envfleet uses its preset,
Stable-Baselines3 the settings that its RL Zoo publishes; they are the same numbers. The goal is checked after every
rollout.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.stepping import Stepper, serve

GOAL, EPISODES, BUDGET = 475.0, 100, 300_000
ENV = "CartPole-v1"


def _stepper(rollout: Callable[[], int], learn: Callable[[], None], reached: Callable[[], bool]) -> Stepper:
    """Return a stepper that runs until the goal is reached or the budget is spent."""
    steps = [0]

    def advance() -> int:
        while not reached() and steps[0] < BUDGET:
            steps[0] += rollout()
            learn()
        return steps[0]

    return Stepper(advance, facts=lambda: {"reached": reached()})


def envfleet_run(schedule: str, seed: int) -> Stepper:
    from envfleet.algorithms.settings import PPO
    from envfleet.training.assembly import assemble, resolve
    from envfleet.training.progress import Progress

    settings: dict[str, Any] = {"env": ENV, "steps": BUDGET, "seed": seed, "schedule": schedule}
    resolved = resolve(PPO(backend="processes", **settings))
    parts = assemble(resolved)
    progress = Progress(resolved.settings)
    newest: list[Any] = [None]
    begun = [0.0]

    def rollout() -> int:
        begun[0] = progress.share
        newest[0] = parts.schedule.next()
        progress.add(newest[0])
        return int(newest[0].rewards.size)

    def learn() -> None:
        parts.learner.learn(newest[0], begun[0])

    return _stepper(rollout, learn, lambda: progress.episodes >= EPISODES and progress.mean_return >= GOAL)


def stable_baselines3_run(threads: int | None, seed: int) -> Stepper:
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    if threads is not None:
        torch.set_num_threads(threads)
    model = PPO(
        "MlpPolicy",
        make_vec_env(ENV, n_envs=8, seed=seed),
        n_steps=32,
        batch_size=256,
        gae_lambda=0.8,
        gamma=0.98,
        n_epochs=20,
        ent_coef=0.0,
        learning_rate=lambda left: 1e-3 * left,
        clip_range=lambda left: 0.2 * left,
        seed=seed,
        device="cpu",
    )
    _, callback = model._setup_learn(BUDGET)
    recent: Any = model.ep_info_buffer  # of the last 100 episodes

    def rollout() -> int:
        model.collect_rollouts(model.env, callback, model.rollout_buffer, n_rollout_steps=model.n_steps)
        model._update_current_progress_remaining(model.num_timesteps, BUDGET)
        return model.n_steps * model.n_envs

    def reached() -> bool:
        return len(recent) >= EPISODES and sum(episode["r"] for episode in recent) / len(recent) >= GOAL

    return _stepper(rollout, model.train, reached)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=("envfleet", "sb3"))
    parser.add_argument("--schedule", default="sync")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seed", type=int, required=True)
    options = parser.parse_args()
    if options.library == "envfleet":
        serve(partial(envfleet_run, options.schedule, options.seed))
    else:
        serve(partial(stable_baselines3_run, options.threads, options.seed))


if __name__ == "__main__":
    main()
