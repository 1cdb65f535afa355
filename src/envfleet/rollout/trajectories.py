"""Trajectories and their figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Collection", "CollectionStatistics", "Trajectory", "summarise"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Trajectory:
    """One episode, or the piece of it that was collected; it starts where the environment was reset.

    `observations` has one entry more than `actions` and `rewards`: the one the last step led to. Dict and
    Tuple spaces give dicts and tuples of such arrays; Text, Graph and Sequence give tuples of values.
    """

    env_index: int
    observations: Any  # [steps + 1, ...]
    actions: Any  # [steps, ...]
    rewards: Array  # [steps], float64
    terminated: bool
    truncated: bool
    complete: bool  # the environment itself ended the episode
    restarted: bool  # the environment was lost: cut (truncated) before the step that it did not return from
    task: Any = None  # info["task"] of the reset that began it, where the environment says it
    masks: Array | None = None  # [steps + 1, action], bool: info["action_mask"] beside each observation, where known

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def episode_return(self) -> float:
        """The sum of the rewards."""
        return float(self.rewards.sum())


@dataclass(frozen=True)
class CollectionStatistics:
    """Figures of a collection; returns and lengths are those of complete episodes, NaN where none is."""

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
    """What `collect` gives: trajectories by environment and, within it, by time."""

    trajectories: list[Trajectory]
    statistics: CollectionStatistics


def summarise(trajectories: list[Trajectory], restarts: int, seconds: float) -> CollectionStatistics:
    """The figures of trajectories that took `seconds` to collect."""
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
