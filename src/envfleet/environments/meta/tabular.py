"""`envfleet/TabularMDP-v0`: a random Markov decision process (Duan et al. 2016, RL²)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envfleet.capabilities import KnownReturn
from envfleet.environments.meta.settings import TabularSettings, TaskSettings
from envfleet.environments.meta.task_env import State, TaskEnv
from envfleet.errors import SettingsError
from envfleet.seeding import stream

__all__ = ["TabularMDP"]

STATES, ACTIONS, HORIZON = 10, 5, 10
_KNOWN_TASKS = 1000


class TabularMDP(TaskEnv):
    """Moves between 10 states with 5 actions, for 10 steps from state 0.

    Task: [state, action, 1 + next state], the mean reward, from N(1, 1), and the probabilities of the next state, from
    a flat Dirichlet distribution. A reward has a standard deviation of 1. State: the number of the state (one-hot) and
    the share of steps done. The objective is a finite number of steps, so the last one terminates the episode.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 2}
    settings_class: ClassVar[type[TaskSettings]] = TabularSettings
    horizon = HORIZON
    task_shape = (STATES, ACTIONS, 1 + STATES)

    def __init__(self, *, render_mode: str | None = None, **settings: Any) -> None:
        super().__init__(render_mode=render_mode, **settings)
        self.observation_space = spaces.Box(0.0, 1.0, (STATES + 1,), np.float32)
        self.action_space = spaces.Discrete(ACTIONS)
        self._at, self._last = 0, -1
        self._means = np.zeros((STATES, ACTIONS))
        self._reach = np.zeros((STATES, ACTIONS, STATES))  # cumulative probabilities of the next state
        self._visits = np.zeros((STATES, ACTIONS), np.int64)

    def sample_tasks(self, n: int, generator: np.random.Generator) -> list[Any]:
        means = generator.normal(1.0, 1.0, (n, STATES, ACTIONS, 1))
        chances = generator.dirichlet(np.ones(STATES), (n, STATES, ACTIONS))
        tasks: list[Any] = np.concatenate([means, chances], axis=-1).tolist()
        return tasks

    def _checked(self, task: Any) -> NDArray[np.float64]:
        checked = super()._checked(task)
        chances = checked[..., 1:]
        if chances.min() < 0 or np.abs(chances.sum(axis=-1) - 1.0).max() > 1e-6:
            raise SettingsError("received a task whose probabilities of the next state do not sum to 1")
        return checked

    def _begin(self, task: NDArray[np.float64]) -> State:
        self._means, self._reach = task[..., 0].copy(), task[..., 1:].cumsum(axis=-1)
        self._at, self._last = 0, -1
        self._visits[:] = 0
        return self._seen(0)

    def _act(self, action: Any) -> tuple[State, float, bool, dict[str, Any]]:
        here, done = (self._at, int(action)), self._steps + 1
        reward = float(self._means[here] + self.np_random.standard_normal())
        # The last cumulative probability may be a little below 1.
        self._at = min(int(np.searchsorted(self._reach[here], self.np_random.random(), side="right")), STATES - 1)
        self._visits[here] += 1
        self._last = here[1]
        return self._seen(done), reward, done >= HORIZON, {}

    def _seen(self, done: int) -> State:
        seen = np.zeros(STATES + 1, np.float32)
        seen[self._at], seen[STATES] = 1.0, done / HORIZON
        return seen

    def describe(self) -> str:
        return f"state {self._at}" + ("" if self._last < 0 else f", after action {self._last}")

    def known_returns(self) -> Sequence[KnownReturn]:
        """The return of an agent that knows the task, by value iteration: the mean over many tasks."""
        tasks = np.array(self.sample_tasks(_KNOWN_TASKS, stream(0)))
        means, chances = tasks[..., 0], tasks[..., 1:]
        value = np.zeros((_KNOWN_TASKS, STATES))
        for _ in range(HORIZON):
            value = (means + np.einsum("tsan,tn->tsa", chances, value)).max(axis=-1)
        informed = (float(value[:, 0].mean()),) * self.settings.episodes_per_task
        return (KnownReturn("task known", "value iteration", informed),)

    def _picture(self) -> NDArray[np.uint8]:
        from envfleet.environments.meta.pictures import table

        return table(self._means, self._visits, self._at)
