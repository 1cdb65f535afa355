"""A group's observations: checked, written to its rows of the shared memory block, and read back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from envfleet.fleet.arrays import FleetArrays
from envfleet.fleet.spaces import Array, BatchWriter, Leaf, as_array, expected_text, leaves_of, pick, rebuild
from envfleet.fleet.validation import Misfit, Validation, fit
from envfleet.wording import shown

__all__ = ["ObservationStore"]


class ObservationStore:
    """Stores the observations of one group's environments: two slots, and the final observations."""

    def __init__(
        self,
        arrays: FleetArrays,
        rows: slice,
        *,
        validation: Validation,
        own_spaces: Sequence[spaces.Space[Any]] | None = None,
    ) -> None:
        """`own_spaces` has the space of each environment, if they are not all the same."""
        shape = arrays.shape
        own = None if own_spaces is None else [{leaf.path: leaf for leaf in leaves_of(space)} for space in own_spaces]
        self._own_leaves = own
        self._space = shape.observation_space
        self._slots = [{path: array[rows] for path, array in slot.items()} for slot in arrays.observations]
        final = {path: array[rows] for path, array in arrays.final.items()}
        self.final_slot = len(self._slots)
        validate = validation.checks_values
        self._writers = [
            BatchWriter(
                leaf,
                [*(slot[leaf.path] for slot in self._slots), final[leaf.path]],
                validate=validate,
                own_spaces=None if own is None else [leaves[leaf.path].space for leaves in own],
            )
            for leaf in shape.observation_leaves
            if leaf.fixed
        ]
        self.object_leaves = [leaf for leaf in shape.observation_leaves if not leaf.fixed]
        self._whole = len(self._writers) == 1 and self._writers[0].leaf.path == ()
        self._validation, self._first_env = validation, rows.start
        self.last_slot = 0
        self.objects: dict[Any, list[Any]] = {}  # the newest values of object leaves, by path

    def write(self, observations: list[Any], slot: int) -> tuple[int, str] | None:
        """Store one observation per environment; if one does not fit, return its index in the group and the reason."""
        for writer in self._writers:
            try:
                values = observations if self._whole else [pick(o, writer.leaf.path) for o in observations]
                fits = writer.write(values, slot)
            except (KeyError, IndexError, TypeError):
                fits = False
            if not fits:
                for i, observation in enumerate(observations):
                    reason = self._write_one(i, observation, writer, slot)
                    if reason is not None:
                        return i, reason
        if self.object_leaves:
            self.objects = {leaf.path: [pick(o, leaf.path) for o in observations] for leaf in self.object_leaves}
        self.last_slot = slot
        return None

    def write_batch(self, batch: Any, slot: int, rows: Array | None = None) -> tuple[int, str] | None:
        """As `write`, from batched observations; with a mask `rows`, of these environments only."""
        count = len(self._writers[0].outputs[slot]) if self._writers else 0
        for writer in self._writers:
            try:
                values = pick(batch, writer.leaf.path)
            except (KeyError, IndexError, TypeError):
                return 0, _entry_missing(writer.leaf, batch)
            if writer.write_rows(values, slot, rows):
                continue
            array = as_array(values)
            if array is None or array.shape[:1] != (count,):
                given = shown(values) if array is None else f"shape {array.shape}"
                return 0, expected_text(writer.leaf, f"{given} (one row for each of {count} environments was expected)")
            for i in range(count) if rows is None else np.flatnonzero(rows).tolist():
                reason = self._store(i, array[i], writer, slot)
                if reason is not None:
                    return i, reason
        return None

    def copy_rows(self, rows: Array, source: int, target: int) -> None:
        """Copy the observations of the environments in the mask `rows` from one slot to another."""
        for writer in self._writers:
            writer.outputs[target][rows] = writer.outputs[source][rows]

    def write_final(self, i: int, observation: Any) -> str | None:
        """Store the last observation of an episode; return the reason if it does not fit."""
        for writer in self._writers:
            reason = self._write_one(i, observation, writer, self.final_slot)
            if reason is not None:
                return reason
        return None

    def last(self, i: int) -> Any:
        """Copy of the newest stored observation of one environment."""
        parts: dict[Any, Any] = {path: array[i].copy() for path, array in self._slots[self.last_slot].items()}
        for leaf in self.object_leaves:
            parts[leaf.path] = self.objects[leaf.path][i] if leaf.path in self.objects else None
        return rebuild(self._space, parts)

    def _write_one(self, i: int, observation: Any, writer: BatchWriter, slot: int) -> str | None:
        """Store one environment's value of a leaf, converting it unless validation is strict; return why it failed."""
        try:
            value = pick(observation, writer.leaf.path)
        except (KeyError, IndexError, TypeError):
            leaf = writer.leaf if self._own_leaves is None else self._own_leaves[i][writer.leaf.path]
            return _entry_missing(leaf, observation)
        return self._store(i, value, writer, slot)

    def _store(self, i: int, value: Any, writer: BatchWriter, slot: int) -> str | None:
        leaf, validation = writer.leaf, self._validation
        if self._own_leaves is not None:
            leaf = self._own_leaves[i][leaf.path]
        try:
            stored, deviations = fit(leaf, value, bounds=validation.checks_values)
        except Misfit as misfit:
            return expected_text(leaf, misfit.received)
        for kind, received, fix in deviations:
            reason = expected_text(leaf, received)
            if validation.strict:
                return reason
            validation.report(self._first_env + i, kind, reason, fix)
            if kind == "dtype":
                writer.allow_casts()
        try:
            writer.outputs[slot][i] = stored if deviations else value
        except OverflowError:  # bounds are not checked, and the dtype cannot hold this integer
            return expected_text(leaf, shown(value))
        return None


def _entry_missing(leaf: Leaf, observation: Any) -> str:
    given = sorted(map(str, observation)) if isinstance(observation, dict) else type(observation).__name__
    return f"expected an entry {leaf.name!r} of {leaf.space}, received {given}"
