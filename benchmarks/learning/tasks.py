"""Tasks to learn: settings, seeds and target returns.

Only the standard library is used, because other libraries' virtual environments import this file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Published:
    """Published results with these settings: the mean return of the last 100 episodes, by number of steps."""

    source: str
    training: dict[int, tuple[float, ...]]  # one value per run, or their mean
    held_out: dict[int, float]


@dataclass(frozen=True)
class Task:
    """One environment to learn."""

    name: str
    env: str
    seeds: tuple[int, ...]
    evaluation_episodes: int
    recent: int  # training episodes whose mean return counts as the end of a curve
    settings: dict[str, Any] = field(default_factory=dict)  # in addition to the preset
    algorithm: str = "ppo"
    least: float | None = None  # target: mean return in evaluation
    least_in_training: float | None = None  # target: mean training return of the last five updates
    least_held_out: float | None = None  # target: mean return in evaluation on all levels, or on held-out tasks
    least_last_episode: float | None = None  # target: mean return of the last episode of a trial, on held-out tasks
    most_held_out: float | None = None  # target of a control: at most this mean return on held-out tasks
    splits: tuple[str, str] = ("training levels", "all levels")  # names of the two evaluations, if there are two
    note: str = ""  # part of its title, if another task has the same environment and algorithm
    beside_peer: bool = False  # Stable-Baselines3 learns it too, with the same settings
    share_of_peer: float | None = None  # target: our mean over seeds as a share of theirs
    above: str | None = None  # target: every seed ends above all seeds of this task
    published: Published | None = None


# Every value is explicit, so that both libraries use the same; `peer_run` passes them to Stable-Baselines3.
_HALFCHEETAH = {
    "steps": 300_000,
    "n_envs": 8,
    "rollout_steps": 256,
    "minibatch_size": 64,
    "epochs": 10,
    "gamma": 0.99,
    "lam": 0.95,
    "learning_rate": 3e-4,
    "learning_rate_schedule": "constant",
    "clip_range": 0.2,
    "clip_range_schedule": "constant",
    "entropy_coefficient": 0.0,
    "value_coefficient": 0.5,
    "max_gradient_norm": 0.5,
    "normalise_observations": True,
    "normalise_rewards": True,
}

# Close to the RL Zoo's for Stable-Baselines3, but with 8 environments, a smaller network and half as many updates.
_LUNARLANDER_DQN = {
    "steps": 100_000,
    "n_envs": 8,
    "rollout_steps": 1,
    "replay_size": 50_000,
    "learning_starts": 1_000,
    "minibatch_size": 128,
    "train_frequency": 8,
    "gradient_steps": 4,
    "target_update_frequency": 128,
    "gamma": 0.99,
    "learning_rate": 6.3e-4,
    "learning_rate_schedule": "constant",
    "max_gradient_norm": 10.0,
    "initial_epsilon": 1.0,
    "epsilon_min": 0.1,
    "exploration_fraction": 0.12,
    "hidden": (128, 128),
    "activation": "relu",
    # Stable-Baselines3 does not have these.
    "double": False,
    "dueling": False,
    "n_step": 1,
}

# Stable-Baselines3's defaults, with the RL Zoo's learning rate for Pendulum and its start for MuJoCo.
_SAC = {
    "n_envs": 4,
    "rollout_steps": 1,
    "replay_size": 1_000_000,
    "minibatch_size": 256,
    "updates_per_step": 1.0,
    "target_rate": 0.005,
    "gamma": 0.99,
    "hidden": (256, 256),
    "learner_threads": 1,  # a core each, side by side
}
_PENDULUM_SAC = {**_SAC, "steps": 20_000, "learning_rate": 1e-3, "learning_starts": 400}
_HALFCHEETAH_SAC = {**_SAC, "steps": 100_000, "learning_rate": 3e-4, "learning_starts": 10_000}
# The same start for both, so that only the updates differ.
_SHORT = {"steps": 30_000, "n_envs": 4, "rollout_steps": 1, "learning_starts": 5_000, "learner_threads": 1}

_TRAIN_PROCGEN = Published(
    "PPO of openai/train-procgen (its `results/*/progress-coinrun*.csv`, three runs, mean over five updates)",
    {250_000: (6.04, 6.02, 6.16), 500_000: (6.69,), 1_000_000: (8.14, 7.94, 7.58), 2_000_000: (8.38, 8.22, 8.46)},
    {250_000: 5.63, 500_000: 6.41, 1_000_000: 7.45, 2_000_000: 7.83},
)

# RL²: with memory, and over trials.
_MEMORY, _TASKS = {"memory": "gru"}, ("training tasks", "held-out tasks")
_SAC_MEMORY = {**_MEMORY, "learner_threads": 1}

TASKS = {
    task.name: task
    for task in (
        Task("lunarlander", "LunarLander-v3", (1, 2, 3), 100, 100, least=200.0),
        Task("halfcheetah", "HalfCheetah-v5", (1, 2, 3), 20, 40, settings=_HALFCHEETAH, beside_peer=True),
        Task(
            "lunarlander-dqn",
            "LunarLander-v3",
            (1, 2, 3),
            100,
            50,
            settings=_LUNARLANDER_DQN,
            algorithm="dqn",
            beside_peer=True,
        ),
        Task(
            "pendulum-sac",
            "Pendulum-v1",
            (1, 2, 3, 4, 5),
            100,
            20,
            settings=_PENDULUM_SAC,
            algorithm="sac",
            least=-180.0,
            beside_peer=True,
        ),
        Task(
            "halfcheetah-sac",
            "HalfCheetah-v5",
            (1, 2, 3),
            20,
            20,
            settings=_HALFCHEETAH_SAC,
            algorithm="sac",
            beside_peer=True,
            share_of_peer=0.9,
        ),
        Task(
            "halfcheetah-sac-short",
            "HalfCheetah-v5",
            (1, 2, 3),
            20,
            10,
            settings=_SHORT,
            algorithm="sac",
            note="30,000 steps",
        ),
        Task(
            "halfcheetah-sac-efficient",
            "HalfCheetah-v5",
            (1, 2, 3),
            20,
            10,
            settings={**_SHORT, "preset": "sample-efficient"},
            algorithm="sac",
            note="30,000 steps, sample-efficient",
            above="halfcheetah-sac-short",
        ),
        Task(
            "cartpole-sac",
            "CartPole-v1",
            (1, 2, 3),
            100,
            100,
            settings={"steps": 50_000, "learner_threads": 1},
            algorithm="sac",
            least=475.0,
        ),
        Task(
            "coinrun",
            "procgen/coinrun",
            (1,),
            500,
            100,
            least_in_training=7.5,
            least_held_out=7.0,
            published=_TRAIN_PROCGEN,
        ),
        Task(
            "bandit",
            "envfleet/Bandit-v0",
            (1, 2, 3),
            2000,
            5000,
            settings={**_MEMORY, "steps": 4_000_000},
            least_held_out=6.59,
            splits=_TASKS,
        ),
        Task(
            "bandit-100",
            "envfleet/Bandit-v0",
            (1,),
            5000,
            1000,
            settings={**_MEMORY, "env_kwargs": {"pulls": 100}, "steps": 20_000_000},
            note="100 pulls",
            least_held_out=77.0,
            splits=_TASKS,
        ),
        Task(
            "pointrobotsparse",
            "envfleet/PointRobotSparse-v0",
            (1,),
            500,
            500,
            settings={**_MEMORY, "steps": 30_000_000},
            least_held_out=75.0,
            least_last_episode=42.0,
            splits=_TASKS,
        ),
        Task(  # a control: it sees neither rewards nor its past, so it cannot adapt
            "pointrobotsparse-markov",
            "envfleet/PointRobotSparse-v0",
            (1,),
            500,
            500,
            settings={"env_kwargs": {"show_previous": False}, "steps": 3_000_000},
            note="a control without memory",
            most_held_out=20.0,
            splits=_TASKS,
        ),
        Task(
            "tabular-mdp",
            "envfleet/TabularMDP-v0",
            (1,),
            1000,
            1000,
            settings={**_MEMORY, "steps": 30_000_000},
            least_held_out=150.2,
            splits=_TASKS,
        ),
        Task(
            "wind-sac",
            "envfleet/Wind-v0",
            (1,),
            200,
            200,
            settings=_SAC_MEMORY,
            algorithm="sac",
            least_held_out=57.0,
            splits=_TASKS,
        ),
        Task(
            "halfcheetahvel-sac",
            "envfleet/HalfCheetahVel-v0",
            (1,),
            200,
            100,
            settings=_SAC_MEMORY,
            algorithm="sac",
            least_held_out=-200.0,
            splits=_TASKS,
        ),
        Task(
            "pointrobotsparse-sac",
            "envfleet/PointRobotSparse-v0",
            (1,),
            500,
            500,
            settings=_SAC_MEMORY,
            algorithm="sac",
            least_held_out=70.0,
            splits=_TASKS,
        ),
    )
}
