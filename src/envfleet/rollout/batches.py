"""Batches of the asynchronous schedule: rollouts of single groups, put together to arrays `[time, env, ...]`.

A batch has as many environments as the fleet: a slot for each of its groups. A group fills its own slot if that is
free, and otherwise another one of the same size, so a fast worker fills several, and a slow one none. Rows are copied,
so the worker's buffer is free at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from envfleet.rollout.arrays import Rollout, RolloutShape, private_arrays

__all__ = ["RolloutBatch"]

Array = np.ndarray[Any, Any]
_NOT_COPIED = ("weights", "progress", "carried", "masked", "allowed")  # not a part of one rollout


class RolloutBatch:
    """The arrays of one batch, filled group by group."""

    def __init__(self, shape: RolloutShape, groups: Sequence[range]) -> None:
        self._groups = groups
        own = dataclasses.replace(shape, buffers=1, weights=0, weight_sets=1)
        self._arrays = private_arrays(own.arrays())
        self._names = [name for name in self._arrays if name not in _NOT_COPIED]
        self._length = shape.steps
        self._env_ids = np.zeros(shape.n_envs, np.int64)
        self._versions = np.zeros(shape.n_envs, np.int64)
        self.clear()

    def clear(self) -> None:
        """Empty all slots."""
        self._free = list(range(len(self._groups)))

    @property
    def full(self) -> bool:
        return not self._free

    @property
    def steps(self) -> int:
        """Steps in the filled slots."""
        return self.steps_of(range(len(self._groups))) - self.steps_of(self._free)

    def steps_of(self, groups: Iterable[int]) -> int:
        """Steps in the rollouts of these groups."""
        return sum(len(self._groups[group]) for group in groups) * self._length

    def lost_steps(self, arrays: Mapping[str, Array], buffer: int, groups: Iterable[int]) -> int:
        """Steps in the rollouts of these groups that never happened."""
        valid = arrays["valid"][buffer]
        return sum(int(np.count_nonzero(~valid[:, self._groups[group]])) for group in groups)

    def add(self, arrays: Mapping[str, Array], buffer: int, group: int, version: int) -> bool:
        """Copy the rollout of a group into its own slot or the first free one of its size. False if there is none."""
        source = self._groups[group]
        fitting = (slot for slot in self._free if len(self._groups[slot]) == len(source))
        slot = group if group in self._free else next(fitting, None)
        if slot is None:
            return False
        self._free.remove(slot)
        target = self._groups[slot]
        to, rows = slice(target.start, target.stop), slice(source.start, source.stop)
        masked = bool(arrays["masked"][0])
        self._arrays["masked"][0] = masked
        finals = _finals_used(arrays, buffer, rows)
        for name in self._names:
            ours, theirs = self._arrays[name][0], arrays[name][buffer]
            if name == "seconds":  # [group, 2]
                ours[slot] = theirs[group]
            elif name in ("forbidden", "final_masks") and not masked:
                ours[:, to] = name == "final_masks"  # all allowed, in case a later group of this batch has a mask
            elif name.startswith("final"):
                ours[:finals, to] = theirs[:finals, rows]
            else:
                ours[:, to] = theirs[:, rows]
        self._env_ids[to] = np.arange(source.start, source.stop)
        self._versions[to] = version
        return True

    def rollout(self, number: int) -> Rollout:
        """The full batch as a rollout, by views that the next batch overwrites."""
        assert self.full
        found = Rollout.of(self._arrays, 0, number)
        return dataclasses.replace(found, env_ids=self._env_ids, versions=self._versions)


def _finals_used(arrays: Mapping[str, Array], buffer: int, rows: slice) -> int:
    """Number of rows of finals that these environments used."""
    truncated, terminated, valid = (arrays[name][buffer][:, rows] for name in ("truncated", "terminated", "valid"))
    return int((truncated & ~terminated & valid).sum(axis=0).max(initial=0))
