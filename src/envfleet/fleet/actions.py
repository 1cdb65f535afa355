"""The caller's actions: checked and written to their rows of the fleet's arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector.utils import batch_space, iterate

from envfleet.errors import ActionError
from envfleet.fleet.arrays import FleetArrays
from envfleet.fleet.requests import Request, StepObjects
from envfleet.fleet.rows import Rows
from envfleet.fleet.spaces import Leaf, pick, rebuild, row_of

__all__ = ["ActionWriter"]

Array = np.ndarray[Any, Any]


class ActionWriter:
    """Writes batches of actions. Objects (Text, Graph, Sequence) do not fit into arrays and travel as requests."""

    def __init__(self, arrays: FleetArrays) -> None:
        self._arrays, self._n_envs = arrays.actions, arrays.shape.n_envs
        self._space, self._leaves = arrays.shape.action_space, arrays.shape.action_leaves
        self._single = len(self._leaves) == 1 and self._leaves[0].path == ()
        self._objects = not all(leaf.fixed for leaf in self._leaves)

    def write(self, actions: Any, rows: Rows) -> list[Request] | None:
        """Write one action for each of these rows; for objects, return the groups' requests that carry them instead."""
        if self._objects:
            listed = self._listed(actions, rows)
            return [StepObjects(listed[part]) for part in rows.parts]
        if type(actions) is np.ndarray and self._single and len(rows.slices) == 1:
            target = self._arrays[()]
            if rows.count < self._n_envs:
                target = target[rows.slices[0]]
            if actions.dtype == target.dtype and actions.shape == target.shape:  # no further check is needed
                target[...] = actions
                return None
        for leaf in self._leaves:
            try:
                given = actions if self._single else pick(actions, leaf.path)
            except (KeyError, IndexError, TypeError):
                raise ActionError(f"actions have no entry {leaf.name!r}, expected one for {leaf.space}") from None
            rows.put(self._arrays[leaf.path], self._checked(given, leaf, rows))
        return None

    def last(self, env: int) -> Any:
        """Last written action of one environment; None if it was an object."""
        if self._objects:
            return None
        return rebuild(self._space, {path: row_of(array, env) for path, array in self._arrays.items()})

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
        raise ActionError(f"actions{where} are of type {batch.dtype}, expected {leaf.dtype} for {leaf.space}")

    def _listed(self, actions: Any, rows: Rows) -> list[Any]:
        """Split a batch into one action per environment."""
        try:
            listed = list(iterate(batch_space(self._space, rows.count), actions))
        except (TypeError, ValueError, KeyError) as error:
            raise ActionError(f"actions cannot be split per environment: {error}") from None
        if len(listed) != rows.count:
            raise ActionError(f"there are {len(listed)} actions, expected one per environment: {rows.count}")
        return listed
