"""`envfleet/Bandit-v0`: a Bernoulli bandit (Duan et al. 2016, RL²). Its optimum is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envfleet.capabilities import KnownReturn
from envfleet.environments.meta.settings import BanditSettings, TaskSettings
from envfleet.environments.meta.task_env import State, TaskEnv
from envfleet.errors import SettingsError

__all__ = ["Bandit"]


class Bandit(TaskEnv):
    """Pulls one of several arms, each of which pays 1 with an unknown probability.

    Task: the probability of each arm, uniform in [0, 1]. State: the share of pulls done. The objective is the finite
    number of pulls, so the last one terminates the episode.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 2}
    settings_class: ClassVar[type[TaskSettings]] = BanditSettings

    def __init__(self, *, render_mode: str | None = None, **settings: Any) -> None:
        super().__init__(render_mode=render_mode, **settings)
        assert isinstance(self.settings, BanditSettings)
        self.arms, self.horizon = self.settings.arms, self.settings.pulls
        self.task_shape = (self.arms,)
        self.observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
        self.action_space = spaces.Discrete(self.arms)
        self._pulls = np.zeros((2, self.arms), np.int64)  # without and with a payment, by arm
        self._last = -1

    def sample_tasks(self, n: int, generator: np.random.Generator) -> list[Any]:
        tasks: list[Any] = generator.random((n, self.arms)).tolist()
        return tasks

    def _checked(self, task: Any) -> NDArray[np.float64]:
        checked = super()._checked(task)
        if checked.min() < 0 or checked.max() > 1:
            raise SettingsError(f"received the task {checked.tolist()}, expected probabilities from 0 to 1")
        return checked

    def _begin(self, task: NDArray[np.float64]) -> State:
        self._pulls[:] = 0
        self._last = -1
        return np.zeros(1, np.float32)

    def _act(self, action: Any) -> tuple[State, float, bool, dict[str, Any]]:
        arm = int(action)
        paid = bool(self.np_random.random() < self.task[arm])
        self._pulls[int(paid), arm] += 1
        self._last = arm
        done = self._steps + 1
        return np.array([done / self.horizon], np.float32), float(paid), done >= self.horizon, {}

    def describe(self) -> str:
        return "pays " + " ".join(f"{chance:.2f}" for chance in self.task[:12])

    def known_returns(self) -> Sequence[KnownReturn]:
        """The optimum: a trial of several episodes is one long episode, since the arms stay the same."""
        from envfleet.environments.meta.bandit_optimum import exact_return, index_returns, is_small

        episodes = self.settings.episodes_per_task
        if episodes == 1 and is_small(self.arms, self.horizon):
            best = (exact_return(self.arms, self.horizon),)
            return (KnownReturn("optimum", "dynamic programming", best),)
        rewards = index_returns(self.arms, self.horizon * episodes)
        if rewards is None:
            return ()
        returns = tuple(rewards.reshape(episodes, self.horizon).sum(axis=1).tolist())
        return (KnownReturn("optimum, nearly", "finite-horizon index policy", returns),)

    def _picture(self) -> NDArray[np.uint8]:
        from envfleet.environments.meta.pictures import bars

        return bars(self.task, self._pulls, self._last)
