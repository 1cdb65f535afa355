"""Trajectories and their statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Collection", "CollectionStatistics", "Trajectory", "summarise"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Trajectory:
    """One episode, from its reset to its end or to the end of collection.

    `observations` has one entry more than `actions` and `rewards`: the observation after the last step. For Dict and
    Tuple spaces they are dicts and tuples of arrays; for Text, Graph and Sequence spaces, tuples of values.
    """

    env_index: int
    observations: Any  # [steps + 1, ...]
    actions: Any  # [steps, ...]
    rewards: Array  # [steps], float64
    terminated: bool
    truncated: bool
    complete: bool  # the environment itself ended the episode
    restarted: bool  # the environment was lost: the episode was truncated before the step that failed
    task: Any = None  # info["task"] of its reset, if the environment provides it
    masks: Array | None = None  # [steps + 1, action], bool: info["action_mask"] of each observation, if known

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def episode_return(self) -> float:
        """Sum of the rewards."""
        return float(self.rewards.sum())


@dataclass(frozen=True)
class CollectionStatistics:
    """Statistics of a collection. Returns and lengths cover complete episodes; NaN if there are none."""

    episodes: int  # complete ones
    restarts: int  # episodes cut because their environment was lost
    steps: int  # in the trajectories
    seconds: float
    steps_per_second: float
    mean_return: float
    std_return: float
    min_return: float
    max_return: float
    mean_length: float


@dataclass(frozen=True)
class Collection:
    """The result of `collect`; trajectories are ordered by environment, then by time."""

    trajectories: list[Trajectory]
    statistics: CollectionStatistics


def summarise(trajectories: list[Trajectory], restarts: int, seconds: float) -> CollectionStatistics:
    """Return the statistics of trajectories that took `seconds` to collect."""
    complete = [trajectory for trajectory in trajectories if trajectory.complete]
    returns = np.array([trajectory.episode_return for trajectory in complete] or [np.nan])
    lengths = np.array([float(len(trajectory)) for trajectory in complete] or [np.nan])
    steps = sum(map(len, trajectories))
    return CollectionStatistics(
        episodes=len(complete),
        restarts=restarts,
        steps=steps,
        seconds=seconds,
        steps_per_second=steps / seconds,
        mean_return=float(returns.mean()),
        std_return=float(returns.std()),
        min_return=float(returns.min()),
        max_return=float(returns.max()),
        mean_length=float(lengths.mean()),
    )
