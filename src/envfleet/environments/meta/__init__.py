"""Meta-RL: environments with many tasks, and trials in which an agent adapts to one of them.

A task is a plain value: a number or a list of numbers, e.g. the goal of a robot. An environment draws tasks with
`sample_tasks(n, generator)` and begins one with `reset(options={"task": value})`. A trial (`trial.Trial`) is k episodes
of one task; the agent keeps its memory through them.
"""

from __future__ import annotations

from envfleet.environments.meta.history import History
from envfleet.environments.meta.settings import TaskSettings
from envfleet.environments.meta.task_env import TaskEnv
from envfleet.environments.meta.trial import Trial

__all__ = ["History", "TaskEnv", "TaskSettings", "Trial"]
