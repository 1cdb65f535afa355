"""Returns of point-robot agents that need no learning, simulated for many robots at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Robots", "earned_by_sweeping", "earned_by_walking"]

ROBOTS = 20_000
_RADIUS = 0.9  # of the sweep: a little inside the circle of goals, which is shorter and still sees all of it
_ANGLES = np.linspace(0.0, np.pi, 40)
_ARC = _RADIUS * np.stack([np.cos(_ANGLES), np.sin(_ANGLES)], axis=1)

Points = NDArray[np.float64]  # [robot, 2]


class Robots:
    """Robots with their goals and winds, and the rewards of an environment: `reward(distances)`."""

    def __init__(
        self, starts: Points, goals: Points, drifts: Points | float, stride: float, reward: Callable[[Any], Any]
    ) -> None:
        self.at, self.goals = starts.copy(), goals
        self._drifts, self._stride, self._reward = drifts, stride, reward

    def walk(self, targets: Points) -> Any:
        """Move towards the targets the fastest way: as far as possible along each axis. Return the rewards."""
        wanted = targets - self.at - self._drifts
        self.at += np.clip(wanted, -self._stride, self._stride) + self._drifts
        return self._reward(np.linalg.norm(self.goals - self.at, axis=1))


def earned_by_walking(robots: Robots, steps: int) -> float:
    """The mean return of robots that know the task: they walk to the goal at once, and stay there."""
    return float(sum(robots.walk(robots.goals).mean() for _ in range(steps)))


def earned_by_sweeping(robots: Robots, steps: int, stride: float) -> float:
    """The mean return of robots that follow the half circle of goals, from its nearer end, until a reward comes.

    A reward shows that the goal is near; from then on they walk to it.
    """
    from_right = robots.at[:, :1] > 0
    found, passed, total = np.zeros(len(robots.at), np.bool_), np.zeros(len(robots.at), np.int64), 0.0
    for _ in range(steps):
        for _ in range(2):  # points of the arc are more than half a stride apart
            near = np.linalg.norm(_next(passed, from_right) - robots.at, axis=1) < stride
            passed = np.minimum(passed + near, len(_ARC) - 1)
        rewards = robots.walk(np.where(found[:, None], robots.goals, _next(passed, from_right)))
        found |= rewards > 0
        total += float(rewards.mean())
    return total


def _next(passed: NDArray[np.int64], from_right: NDArray[np.bool_]) -> Points:
    """The point of the arc that each robot walks to."""
    return np.where(from_right, _ARC[passed], _ARC[len(_ARC) - 1 - passed])
