"""Growing arrays for the values of a space, written for many environments at a time."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
from gymnasium import spaces

from envfleet.fleet.spaces import Leaf, leaves_of, pick, rebuild

__all__ = ["Columns"]

Array = np.ndarray[Any, Any]
FIRST_CAPACITY = 64  # time steps; doubled when an episode is longer


class Columns:
    """The unfinished episodes of all environments: an array `[env, time, ...]` per leaf of the space.

    `cut` copies the values of one environment, so a finished episode takes only the memory of its own steps,
    however long the others are.
    """

    def __init__(self, space: spaces.Space[Any], n_envs: int) -> None:
        self._space = space
        self._leaves = leaves_of(space)
        self._arrays = [_empty(leaf, n_envs, FIRST_CAPACITY) for leaf in self._leaves]

    def write(self, envs: Array, times: Array, batch: Any) -> None:
        """Store the rows `envs` of a batch, each at its own time."""
        if not len(envs):
            return
        self._make_room(int(times.max()))
        for leaf, array in zip(self._leaves, self._arrays, strict=True):
            rows = pick(batch, leaf.path)
            if leaf.fixed:
                array[envs, times] = np.asarray(rows)[envs]
            else:
                for env, time in zip(envs, times, strict=True):
                    array[env, time] = deepcopy(rows[env])

    def write_one(self, env: int, time: int, value: Any) -> None:
        """Store the value of one environment."""
        self._make_room(time)
        for leaf, array in zip(self._leaves, self._arrays, strict=True):
            part = pick(value, leaf.path)
            array[env, time] = part if leaf.fixed else deepcopy(part)

    def cut(self, env: int, length: int) -> Any:
        """Return the first `length` values of one environment: `[time, ...]` per leaf, a tuple for objects."""
        parts: dict[tuple[str | int, ...], Any] = {}
        for leaf, array in zip(self._leaves, self._arrays, strict=True):
            taken = array[env, :length].copy()
            parts[leaf.path] = taken if leaf.fixed else tuple(taken)
        return rebuild(self._space, parts)

    def _make_room(self, time: int) -> None:
        while self._arrays and time >= self._arrays[0].shape[1]:
            self._arrays = [np.concatenate([array, np.empty_like(array)], axis=1) for array in self._arrays]


def _empty(leaf: Leaf, n_envs: int, capacity: int) -> Array:
    if leaf.fixed:
        return np.empty((n_envs, capacity, *leaf.shape), leaf.dtype)
    return np.empty((n_envs, capacity), object)
