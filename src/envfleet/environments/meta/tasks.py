"""The tasks of an environment, in the order of its trials.

Every environment draws its tasks from its own seed, so they are the same on every backend. Training tasks and held-out
ones come from separate streams. A fixed set of tasks is the same in all environments, whatever their seeds.
"""

from __future__ import annotations

import functools
import json
from typing import Any

import numpy as np

from envfleet.capabilities import HasTasks
from envfleet.environments.meta.settings import TaskSettings
from envfleet.errors import SettingsError
from envfleet.seeding import stream

__all__ = ["TaskSource"]

_STREAMS = {"train": 0x7A51, "eval": 0x7A52}  # keys of the task streams of an environment's seed
_SETS = {"train": 0x7A53, "eval": 0x7A54}  # keys of the fixed sets
_TRIES = 100  # draws of a held-out task, after which there are assumed to be no others


class TaskSource:
    """Draws the tasks of an environment, according to its settings."""

    def __init__(self, env: HasTasks, settings: TaskSettings) -> None:
        self._env, self._settings = env, settings

    def stream(self, seed: int) -> np.random.Generator:
        """The generator that an environment with this seed draws its tasks from."""
        return stream(seed, _STREAMS[self._settings.task_set])

    def draw(self, generator: np.random.Generator) -> Any:
        """Draw the task of the next trial."""
        if self._fixed:
            return self._fixed[int(generator.integers(len(self._fixed)))]
        return self._draw_apart(generator)

    @property
    def held_out(self) -> list[Any]:
        """The distinct tasks of a fixed set of held-out ones, in order; empty if every trial has a new task."""
        return list({_key(task): task for task in self._fixed}.values()) if self._settings.task_set == "eval" else []

    @property
    def all_are_used(self) -> bool:
        """Whether training uses every task, so none can be held out; found out by drawing some."""
        drawn = map(_key, self._env.sample_tasks(_TRIES, stream(0, _SETS["eval"])))
        if self._training:
            return self._not_held_out.issuperset(drawn)
        # Every trial of training has a new task. If two streams draw the same one, tasks come up again.
        again = map(_key, self._env.sample_tasks(_TRIES, stream(0, _SETS["train"])))
        return not frozenset(again).isdisjoint(drawn)

    @functools.cached_property
    def _fixed(self) -> list[Any]:
        """The tasks of a fixed set; empty if every trial has a new task."""
        if self._settings.task_set == "train":
            return self._training
        generator = stream(0, _SETS["eval"])
        return [self._draw_apart(generator) for _ in range(self._settings.num_eval_tasks)]

    @functools.cached_property
    def _training(self) -> list[Any]:
        count = self._settings.num_train_tasks
        return list(self._env.sample_tasks(count, stream(0, _SETS["train"]))) if count else []

    @functools.cached_property
    def _not_held_out(self) -> frozenset[str]:
        return frozenset(map(_key, self._training))

    def _draw_apart(self, generator: np.random.Generator) -> Any:
        """Draw a task; a held-out task is never one of the fixed training tasks, unless there are no others."""
        for _ in range(_TRIES):
            task = self._env.sample_tasks(1, generator)[0]
            if self._settings.task_set == "train" or _key(task) not in self._not_held_out:
                break
        return task


def _key(task: Any) -> str:
    """A task as text, to compare tasks."""
    try:
        return json.dumps(task, sort_keys=True)
    except TypeError:
        raise SettingsError(
            f"sample_tasks() returned {type(task).__name__}, expected plain values: numbers, text, lists, dictionaries",
            hint="for an array: array.tolist()",
        ) from None
