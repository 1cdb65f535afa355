"""Settings of environments with tasks: keyword arguments, flags, file keys and documentation in one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from envfleet.settings import Settings, setting

__all__ = ["AntDirSettings", "BanditSettings", "TabularSettings", "TaskSettings", "WindSettings"]

_TRIAL_HELP = "Episodes of a trial. They have the same task, and the agent keeps its memory through them."


@dataclass(frozen=True, kw_only=True)
class TaskSettings(Settings):
    """Tasks and trials."""

    episodes_per_task: int = setting(2, _TRIAL_HELP, minimum=1)
    oracle: bool = setting(False, "Show the task to the agent, for an upper bound.")
    show_previous: bool = setting(
        True, "Show the previous action, the previous reward and the first step of an episode, which a memory needs."
    )
    num_train_tasks: int = setting(0, "Number of training tasks; 0: a new one for every trial.", minimum=0)
    num_eval_tasks: int = setting(
        0, "Number of held-out tasks; evaluate --tasks plays each once. 0: a new one for every trial.", minimum=0
    )
    task_set: Literal["train", "eval"] = setting(
        "train", "Tasks to draw: those of training, or held-out ones (envfleet evaluate --tasks)."
    )


@dataclass(frozen=True, kw_only=True)
class BanditSettings(TaskSettings):
    """A Bernoulli bandit."""

    arms: int = setting(5, "Number of arms.", minimum=1)
    pulls: int = setting(10, "Pulls of an episode.", minimum=1)
    episodes_per_task: int = setting(1, _TRIAL_HELP, minimum=1)


@dataclass(frozen=True, kw_only=True)
class TabularSettings(TaskSettings):
    """A random Markov decision process."""

    episodes_per_task: int = setting(10, _TRIAL_HELP, minimum=1)


@dataclass(frozen=True, kw_only=True)
class WindSettings(TaskSettings):
    """A robot in an unknown wind."""

    episodes_per_task: int = setting(1, _TRIAL_HELP, minimum=1)


@dataclass(frozen=True, kw_only=True)
class AntDirSettings(TaskSettings):
    """An ant that has to walk in an unknown direction."""

    directions: Literal["uniform", "two"] = setting(
        "uniform", "Directions to walk in: any, or two of them, 1 radian to the left and to the right (as VariBAD)."
    )
