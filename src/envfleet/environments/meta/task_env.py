"""The base of environments with tasks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np
from numpy.typing import NDArray

from envfleet.capabilities import HeldOut, KnownReturn
from envfleet.environments.meta.settings import TaskSettings
from envfleet.errors import ProtocolError, SettingsError

__all__ = ["TaskEnv"]

State = NDArray[Any]  # float32; Gymnasium's MuJoCo models declare float64


class TaskEnv(gymnasium.Env[State, Any]):
    """An environment that has a task, a part of it that the agent cannot see.

    A subclass implements how to draw tasks, begin an episode and take a step. Box actions lie in [-1, 1]. An episode is
    truncated after `horizon` steps. Without a given task, `reset` draws one.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 15}
    settings_class: ClassVar[type[TaskSettings]] = TaskSettings
    horizon: int
    task_shape: tuple[int, ...] = ()  # of a task as an array; () for a number

    def __init__(self, *, render_mode: str | None = None, **settings: Any) -> None:
        if render_mode not in (None, "rgb_array"):
            raise SettingsError(f"received render_mode {render_mode!r}, expected 'rgb_array' or none")
        self.settings, self.render_mode = self.settings_class(**settings), render_mode
        self.task: Any = None
        self._steps = 0

    # ---- implemented by a subclass

    @abstractmethod
    def sample_tasks(self, n: int, generator: np.random.Generator) -> list[Any]:
        """Draw n tasks, as plain values."""

    @abstractmethod
    def _begin(self, task: NDArray[np.float64]) -> State:
        """Begin an episode of the task, which is `self.task` as an array; return its first observation."""

    @abstractmethod
    def _act(self, action: Any) -> tuple[State, float, bool, dict[str, Any]]:
        """Take a step: observation, reward, terminated, info."""

    @abstractmethod
    def describe(self) -> str:
        """The task in a few words, for pictures."""

    @abstractmethod
    def _picture(self) -> NDArray[np.uint8]:
        """An image of the environment, [height, width, 3]."""

    def all_tasks(self) -> Sequence[Any] | None:
        """Every task, if there are few; None if there are always others."""
        return None

    def known_returns(self) -> Sequence[KnownReturn]:
        """Returns that are known without learning (`envfleet.capabilities.KnowsReturns`)."""
        return ()

    # ---- Gymnasium

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[State, dict[str, Any]]:
        """Begin an episode of `options["task"]`, or of a new task."""
        gymnasium.Env.reset(self, seed=seed)  # not super(): a simulator's own reset is part of `_begin`
        asked = (options or {}).get("task")
        drawn = self.sample_tasks(1, self.np_random)[0] if asked is None else asked
        (self.task, values), self._steps = self._task_values(drawn), 0
        return self._begin(values), {"task": values if self.task_shape else self.task}

    def step(self, action: Any) -> tuple[State, Any, bool, bool, dict[str, Any]]:
        if self.task is None:
            raise ProtocolError("step() was called before reset()")
        observation, reward, terminated, info = self._act(action)
        self._steps += 1
        return observation, float(reward), terminated, not terminated and self._steps >= self.horizon, info

    def render(self) -> Any:
        if self.render_mode is None:
            return None
        if self.task is None:
            raise ProtocolError("render() was called before reset()")
        return self._picture()

    # ---- held-out tasks

    def generalisation(self) -> HeldOut | None:
        """Tasks that training does not use (`envfleet.capabilities.HoldsOut`); None if it uses all of them."""
        if self.all_tasks() is not None:
            return None
        count = self.settings.num_train_tasks
        trained = f"{count:,} training tasks" if count else "training tasks"
        return HeldOut(trained, "held-out tasks", {"task_set": "eval"})

    def _task_values(self, task: Any) -> tuple[Any, NDArray[np.float64]]:
        """The task as a plain value, and the numbers for `_begin`; raise SettingsError if it is not a valid task."""
        values = self._checked(task)
        return values.tolist(), values

    def _checked(self, task: Any) -> NDArray[np.float64]:
        """The task as an array; raise SettingsError if it has another shape."""
        try:
            array = np.asarray(task, np.float64)
        except (TypeError, ValueError):
            array = np.empty(0)
        if array.shape != self.task_shape or not np.isfinite(array).all():
            expected = f"numbers of shape {list(self.task_shape)}" if self.task_shape else "a number"
            raise SettingsError(
                f"received the task {str(task)[:80]} for {type(self).__name__}, expected {expected}",
                hint="sample_tasks(n, generator) draws tasks",
            )
        return array
