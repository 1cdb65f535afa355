"""Rows of the fleet's arrays: selects the rows of some groups and turns them into batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector.utils import batch_space, iterate

from envfleet.errors import ActionError, SettingsError, StateError
from envfleet.fleet.arrays import FleetArrays
from envfleet.fleet.spaces import Leaf, pick, rebuild
from envfleet.fleet.worker import Answers

__all__ = ["BatchReader", "Rows"]

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

    def put(self, array: Array, values: Array) -> None:
        if len(self.slices) == 1:
            array[self.slices[0]] = values
            return
        at = 0
        for rows in self.slices:
            stop = at + rows.stop - rows.start
            array[rows] = values[at:stop]
            at = stop


class BatchReader:
    """Turns rows of the fleet's arrays into the caller's batches, and the caller's actions into rows."""

    def __init__(self, arrays: FleetArrays, *, copy: bool) -> None:
        self._arrays, self._copy, self._n_envs = arrays, copy, arrays.shape.n_envs
        self._leaves = arrays.shape.observation_leaves
        self._action_leaves = arrays.shape.action_leaves
        self._space = arrays.shape.observation_space
        self._plain = len(self._leaves) == 1 and self._leaves[0].fixed and self._leaves[0].path == ()
        self._one_action = len(self._action_leaves) == 1 and self._action_leaves[0].path == ()

    def observations(self, slot: int, rows: Rows, answers: Answers) -> Any:
        arrays = self._arrays.observations[slot]
        if self._plain:
            if rows.count == self._n_envs and self._copy:
                return arrays[()].copy()
            return self._own(rows.take(arrays[()]), rows)
        parts: dict[Any, Any] = {path: self._own(rows.take(array), rows) for path, array in arrays.items()}
        return rebuild(self._space, self._with_objects(parts, rows, answers))

    def mixed_observations(self, slots: list[int], rows: Rows, answers: Answers) -> Any:
        """As `observations`, for groups whose newest observations are in different slots."""
        parts: dict[Any, Any] = {}
        for leaf in self._leaves:
            if leaf.fixed:
                pieces = [
                    self._arrays.observations[slots[group]][leaf.path][
                        rows.env_ids[part][0] : rows.env_ids[part][-1] + 1
                    ]
                    for group, part in zip(rows.groups, rows.parts, strict=True)
                ]
                parts[leaf.path] = np.concatenate(pieces)
        return rebuild(self._space, self._with_objects(parts, rows, answers))

    def _own(self, batch: Array, rows: Rows) -> Array:
        return batch.copy() if self._copy and len(rows.slices) == 1 else batch

    def _with_objects(self, parts: dict[Any, Any], rows: Rows, answers: Answers) -> dict[Any, Any]:
        for leaf in self._leaves:
            if not leaf.fixed:
                parts[leaf.path] = tuple(
                    value for group in rows.groups for value in answers.messages[group].objects[leaf.path]
                )
        return parts

    def outcomes(self, rows: Rows) -> tuple[Array, Array, Array]:
        """Copies of the rewards, terminations and truncations."""
        arrays = self._arrays
        if rows.count == self._n_envs:
            return arrays.reward.copy(), arrays.terminated.copy(), arrays.truncated.copy()
        if len(rows.slices) == 1:
            part = rows.slices[0]
            return arrays.reward[part].copy(), arrays.terminated[part].copy(), arrays.truncated[part].copy()
        return rows.take(arrays.reward), rows.take(arrays.terminated), rows.take(arrays.truncated)

    def add_final_observations(self, infos: dict[str, Any], rows: Rows, ended: Array) -> None:
        """For same-step autoreset, add the last observations of ended episodes to the infos, as Gymnasium does."""
        if not all(leaf.fixed for leaf in self._leaves):
            return  # already in the infos
        final = np.full(rows.count, None, dtype=object)
        for row in np.flatnonzero(ended):
            env = rows.env_ids[row]
            final[row] = rebuild(self._space, {path: _row(array, env) for path, array in self._arrays.final.items()})
        infos["final_obs"], infos["_final_obs"] = final, ended.copy()

    def copy_slot(self, source: int, target: int, env_ids: range) -> None:
        rows = slice(env_ids.start, env_ids.stop)
        for path, array in self._arrays.observations[source].items():
            self._arrays.observations[target][path][rows] = array[rows]

    def save(self, slot: int) -> dict[str, Array]:
        """Newest observations of all environments, by leaf name."""
        if not all(leaf.fixed for leaf in self._leaves):
            raise StateError("observations of Text, Graph or Sequence spaces cannot be saved as plain data")
        return {leaf.name: self._arrays.observations[slot][leaf.path].copy() for leaf in self._leaves}

    def load(self, slot: int, saved: dict[str, Array]) -> None:
        for leaf in self._leaves:
            array = self._arrays.observations[slot][leaf.path]
            if leaf.name not in saved or saved[leaf.name].shape != array.shape:
                raise StateError(f"the state has no observations for {leaf.name!r} of shape {array.shape}")
            array[...] = saved[leaf.name]

    # --- actions

    def store_actions(self, actions: Any, rows: Rows) -> None:
        """Write a batch of actions to these rows."""
        if type(actions) is np.ndarray and self._one_action and len(rows.slices) == 1:
            target = self._arrays.actions[()]
            if rows.count < self._n_envs:
                target = target[rows.slices[0]]
            if actions.dtype == target.dtype and actions.shape == target.shape:
                target[...] = actions
                return
        for leaf in self._action_leaves:
            try:
                given = actions if self._one_action else pick(actions, leaf.path)
            except (KeyError, IndexError, TypeError):
                raise ActionError(f"actions have no entry {leaf.name!r}, expected one for {leaf.space}") from None
            batch = self._checked(given, leaf, rows)
            target = self._arrays.actions[leaf.path]
            if len(rows.slices) == 1:
                target[rows.slices[0]] = batch
            else:
                rows.put(target, batch)

    def action_of(self, env: int) -> Any:
        """Last stored action of one environment."""
        parts = {path: _row(array, env) for path, array in self._arrays.actions.items()}
        return rebuild(self._arrays.shape.action_space, parts)

    @staticmethod
    def _checked(given: Any, leaf: Leaf, rows: Rows) -> Array:
        try:
            batch = np.asarray(given)
        except ValueError as error:
            raise ActionError(f"actions cannot be made an array: {error}") from None
        expected = (rows.count, *leaf.shape)
        where = f" for {leaf.name!r}" if leaf.path else ""
        if batch.shape != expected:
            raise ActionError(
                f"actions{where} have shape {batch.shape}, expected {expected}: one {leaf.space} per environment"
            )
        if batch.dtype == leaf.dtype or np.can_cast(batch.dtype, leaf.dtype, "same_kind"):
            return batch
        if leaf.dtype.kind in "iu" and batch.dtype.kind in "iub":
            return batch
        if leaf.dtype.kind == "f" and batch.dtype.kind in "iuf":
            return batch
        raise ActionError(f"actions{where} are of type {batch.dtype}, expected {leaf.dtype} for {leaf.space}")

    def list_actions(self, actions: Any, rows: Rows) -> list[Any]:
        """Split a batch into one action per environment, for action spaces without a fixed size."""
        try:
            listed = list(iterate(batch_space(self._arrays.shape.action_space, rows.count), actions))
        except (TypeError, ValueError, KeyError) as error:
            raise ActionError(f"actions cannot be split per environment: {error}") from None
        if len(listed) != rows.count:
            raise ActionError(f"there are {len(listed)} actions, expected one per environment: {rows.count}")
        return listed


def _row(array: Array, index: int) -> Any:
    """Copy of one row: an array, or a number for one-dimensional arrays."""
    value = array[index]
    return value.copy() if isinstance(value, np.ndarray) else value
