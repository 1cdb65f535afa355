"""Rows of the fleet's arrays: the environments of some groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from envfleet.errors import SettingsError

__all__ = ["Rows"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Rows:
    """The environments of some groups, as slices of the fleet's arrays and of a batch."""

    groups: list[int]
    env_ids: Array
    slices: list[slice]  # into the fleet's arrays; adjacent groups are merged
    parts: list[slice]  # into a batch, one per group
    count: int

    @classmethod
    def of(cls, groups: Iterable[int], ranges: Sequence[range]) -> Rows:
        groups, count = list(groups), 0
        slices: list[slice] = []
        parts: list[slice] = []
        for group in groups:
            rows = ranges[group]
            if slices and slices[-1].stop == rows.start:
                slices[-1] = slice(slices[-1].start, rows.stop)
            else:
                slices.append(slice(rows.start, rows.stop))
            parts.append(slice(count, count + len(rows)))
            count += len(rows)
        ids = np.concatenate([np.arange(ranges[group].start, ranges[group].stop) for group in groups])
        return cls(groups, ids, slices, parts, count)

    @classmethod
    def of_env_ids(cls, ids: Array, ranges: Sequence[range]) -> Rows:
        """Rows of the given environments; they must form whole groups, each in order."""
        groups: list[int] = []
        at = 0
        starts = {rows.start: group for group, rows in enumerate(ranges)}
        while ids.ndim == 1 and at < len(ids):
            group = starts.get(int(ids[at]))
            if group is None or not np.array_equal(ids[at : at + len(ranges[group])], np.asarray(ranges[group])):
                break
            groups.append(group)
            at += len(ranges[group])
        if not groups or at < len(ids):
            raise SettingsError(
                f"send() got env_ids {ids.tolist()}, expected whole groups of environments",
                hint=f"groups are {', '.join(f'{r.start}-{r.stop - 1}' for r in ranges[:4])}"
                f"{', ...' if len(ranges) > 4 else ''} (fleet.groups); group_size= changes them",
            )
        if len(set(groups)) < len(groups):
            raise SettingsError(f"send() got env_ids {ids.tolist()} with environments named twice")
        return cls.of(groups, ranges)

    def take(self, array: Array) -> Array:
        """These rows of an array: a view if they are contiguous, otherwise a copy."""
        if len(self.slices) == 1:
            part: Array = array[self.slices[0]]
            return part
        return np.concatenate([array[rows] for rows in self.slices])

    def copy(self, array: Array) -> Array:
        """A copy of these rows of an array."""
        return array[self.slices[0]].copy() if len(self.slices) == 1 else self.take(array)

    def put(self, array: Array, values: Array) -> None:
        if len(self.slices) == 1:
            array[self.slices[0]] = values
            return
        at = 0
        for rows in self.slices:
            stop = at + rows.stop - rows.start
            array[rows] = values[at:stop]
            at = stop
