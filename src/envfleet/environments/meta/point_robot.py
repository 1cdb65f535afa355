"""Robots that move in a plane: `envfleet/PointRobot-v0`, `envfleet/PointRobotSparse-v0`, `envfleet/Wind-v0`.

As in Ni et al. (2022), pomdp-baselines, except for the actions, which lie in [-1, 1] here.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envfleet.capabilities import KnownReturn
from envfleet.environments.meta.known_agents import ROBOTS, Robots, earned_by_sweeping, earned_by_walking
from envfleet.environments.meta.settings import TaskSettings, WindSettings
from envfleet.environments.meta.task_env import State, TaskEnv
from envfleet.seeding import stream

__all__ = ["PointRobot", "PointRobotSparse", "Wind"]

_STRIDE = 0.1  # the longest move along an axis
_GOAL_RADIUS = 0.2
_WIND, _WIND_GOAL, _WIND_RADIUS = 0.08, (0.0, 1.0), 0.03


class _Plane(TaskEnv):
    """A point that moves by 0.1 times its action. State: its position."""

    horizon = 60
    task_shape = (2,)
    radius = _GOAL_RADIUS  # within which the goal is reached
    starts: tuple[tuple[float, float], tuple[float, float]]  # corners of the rectangle where episodes begin

    def __init__(self, *, render_mode: str | None = None, **settings: Any) -> None:
        super().__init__(render_mode=render_mode, **settings)
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self._at = (0.0, 0.0)
        self._path: list[tuple[float, float]] = []  # of this episode, for the picture
        self._reached = False

    def _start(self) -> tuple[float, float]:
        """Where an episode begins."""
        x, y = self.np_random.uniform(*self.starts).tolist()
        return x, y

    @abstractmethod
    def _reward(self, distance: Any) -> Any:
        """The reward at this distance from the goal; also for an array of distances."""

    @property
    def goal(self) -> tuple[float, float]:
        x, y = self.task
        return x, y

    @property
    def drift(self) -> tuple[float, float]:
        """The vector that is added to every move."""
        return 0.0, 0.0

    def _robots(self) -> Robots:
        """Robots with drawn tasks, at the start of an episode."""
        generator = stream(0)
        tasks = np.array(self.sample_tasks(ROBOTS, generator))
        return Robots(generator.uniform(*self.starts, (ROBOTS, 2)), tasks, 0.0, _STRIDE, self._reward)

    def _known(self, name: str) -> KnownReturn:
        """The return of an agent that knows the task."""
        returns = (earned_by_walking(self._robots(), self.horizon),) * self.settings.episodes_per_task
        return KnownReturn(name, "walks to the goal at once", returns)

    def known_returns(self) -> Sequence[KnownReturn]:
        return (self._known("goal known"),)

    def _begin(self, task: NDArray[np.float64]) -> State:
        self._at, self._reached = self._start(), False
        self._path = [self._at]
        return np.array(self._at, np.float32)

    def _act(self, action: Any) -> tuple[State, float, bool, dict[str, Any]]:
        right, up = (min(1.0, max(-1.0, float(part))) for part in action)
        drift = self.drift
        self._at = self._at[0] + _STRIDE * right + drift[0], self._at[1] + _STRIDE * up + drift[1]
        self._path.append(self._at)
        distance = math.dist(self._at, self.goal)
        self._reached |= distance <= self.radius
        return np.array(self._at, np.float32), self._reward(distance), False, {"is_success": self._reached}

    def describe(self) -> str:
        return f"goal ({self.goal[0]:.2f}, {self.goal[1]:.2f})"

    def _picture(self) -> NDArray[np.uint8]:
        from envfleet.environments.meta.pictures import plane

        return plane(self._path, self.goal, self.radius, self.drift)


class PointRobot(_Plane):
    """Moves to an unknown goal in [-1, 1]², from anywhere in it. Reward: minus the distance."""

    starts = (-1.0, -1.0), (1.0, 1.0)

    def sample_tasks(self, n: int, generator: np.random.Generator) -> list[Any]:
        tasks: list[Any] = generator.uniform(-1.0, 1.0, (n, 2)).tolist()
        return tasks

    def _reward(self, distance: Any) -> Any:
        return -distance


class PointRobotSparse(_Plane):
    """Finds an unknown goal on the upper unit half circle. Reward: 1 within 0.2 of it, otherwise 0."""

    starts = (-1.5, -0.5), (1.5, 1.5)

    def sample_tasks(self, n: int, generator: np.random.Generator) -> list[Any]:
        angles = generator.uniform(0.0, np.pi, n)
        tasks: list[Any] = np.stack([np.cos(angles), np.sin(angles)], axis=1).tolist()
        return tasks

    def _reward(self, distance: Any) -> Any:
        return 1.0 * (distance <= self.radius)

    def known_returns(self) -> Sequence[KnownReturn]:
        known = self._known("goal known")
        first = earned_by_sweeping(self._robots(), self.horizon, _STRIDE)
        how = "follows the half circle; later episodes walk to the goal at once"
        return known, KnownReturn("sweep", how, (first, *known.episode_returns[1:]))


class Wind(_Plane):
    """Moves to (0, 1) in an unknown wind. Reward: 1 within 0.03 of it, otherwise 0.

    Task: the wind, uniform in [-0.08, 0.08]², which is added to every move.
    """

    horizon = 75
    radius = _WIND_RADIUS
    settings_class: ClassVar[type[TaskSettings]] = WindSettings

    @property
    def goal(self) -> tuple[float, float]:
        return _WIND_GOAL

    def sample_tasks(self, n: int, generator: np.random.Generator) -> list[Any]:
        tasks: list[Any] = generator.uniform(-_WIND, _WIND, (n, 2)).tolist()
        return tasks

    def _start(self) -> tuple[float, float]:
        return 0.0, 0.0

    def _reward(self, distance: Any) -> Any:
        return 1.0 * (distance <= self.radius)

    @property
    def drift(self) -> tuple[float, float]:
        x, y = self.task
        return x, y

    def _robots(self) -> Robots:
        winds = np.array(self.sample_tasks(ROBOTS, stream(0)))
        goals = np.tile(np.array(_WIND_GOAL), (ROBOTS, 1))
        return Robots(np.zeros((ROBOTS, 2)), goals, winds, _STRIDE, self._reward)

    def known_returns(self) -> Sequence[KnownReturn]:
        return (self._known("wind known"),)

    def describe(self) -> str:
        return f"wind ({self.task[0]:+.3f}, {self.task[1]:+.3f})"
