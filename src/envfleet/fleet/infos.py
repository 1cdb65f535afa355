"""Infos without pickling: recurring keys get a column in the fleet's shared memory block.

An environment's info is an arbitrary dictionary, so a key's first values are sent as Python objects. The fleet then
gives every key with a number or a fixed-shape array a column `[env, ...]` and tells the groups, which write
there from the next step on. A key with values of several types gets a column for each of the first few types;
values of other types are always sent as objects. The result is the same dictionary as from Gymnasium's vector
environments, including `_key` masks. (One difference: if environments give values of different types for a key
in the same step, Gymnasium casts to the first type, e.g. 0.5 to 0; here the array's type fits both.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["NODE", "ColumnDefinition", "ColumnTable", "ColumnWriter", "add_info", "clear_columns", "column_arrays"]

Array = np.ndarray[Any, Any]
Path = tuple[str, ...]
MOST_COLUMNS = 60  # each has a presence bit in one 64-bit word
MOST_KINDS = 3  # columns per key
NODE = "node"  # a dictionary inside the info: only its mask matters


@dataclass(frozen=True)
class ColumnDefinition:
    """A column for one info key and value type; `kind` is the exact type that a value must have."""

    path: Path
    kind: str  # "int", "float", "bool", "np.<name>", "array" or NODE
    dtype: str
    shape: tuple[int, ...]
    mask_offset: int
    offset: int


def _kind_of(value: Any) -> tuple[str, np.dtype[Any], tuple[int, ...]] | None:
    """How Gymnasium batches a value: kind, dtype and shape; None if it uses an object array."""
    kind = type(value)
    if kind in (int, float, bool):
        large = kind is int and not -_INT64 <= value < _INT64
        return None if large else (kind.__name__, np.dtype(kind), ())
    if isinstance(value, np.number):
        return f"np.{value.dtype.name}", value.dtype, ()
    if kind is np.ndarray and value.dtype.kind in "biuf":
        return "array", value.dtype, value.shape
    if kind is dict:
        return NODE, np.dtype(np.bool_), ()
    return None


def column_arrays(definition: ColumnDefinition, area: Array, n_envs: int) -> tuple[Array, Array]:
    """The mask and the values of a column, for all environments, as views of the area of columns."""
    mask = area[definition.mask_offset : definition.mask_offset + n_envs].view(np.bool_)
    dtype, shape = np.dtype(definition.dtype), definition.shape
    count = n_envs * int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    values = area[definition.offset : definition.offset + count].view(dtype).reshape(n_envs, *shape)
    return mask, values


def clear_columns(definitions: list[ColumnDefinition], area: Array, n_envs: int, rows: slice) -> None:
    """Set the masks and values of these environments to zero."""
    for definition in definitions:
        mask, values = column_arrays(definition, area, n_envs)
        mask[rows] = False
        if definition.kind != NODE:
            values[rows] = 0


class _Column:
    """A definition with its arrays: the mask and the values of all environments."""

    def __init__(self, definition: ColumnDefinition, area: Array, n_envs: int) -> None:
        self.definition = definition
        self.kind, self.shape = definition.kind, definition.shape
        *self.parents, self.key = definition.path
        self.mask_key = f"_{self.key}"
        self.dtype = np.dtype(definition.dtype)
        self.type = _TYPES.get(self.kind) or self.dtype.type  # required type of a value
        self.mask, self.values = column_arrays(definition, area, n_envs)
        # Numbers are set through a memoryview if the type has one: twice as fast as through an array.
        simple = self.shape == () and self.kind != NODE and self.dtype.char in "?bBhHiIlLqQfd"
        self.cells: Any = self.values.data if simple else self.values
        self.mask_cells = self.mask.view(np.uint8).data

    def takes(self, values: list[Any]) -> bool:
        """Whether all these values can be stored here."""
        wanted: Any = self.type
        for value in values:
            if type(value) is not wanted:
                return False
        if self.kind == "array":
            return all(value.shape == self.shape and value.dtype == self.dtype for value in values)
        return self.kind != "int" or all(-_INT64 <= value < _INT64 for value in values)


_INT64 = 2**63
_TYPES: dict[str, type] = {"int": int, "float": float, "bool": bool, "array": np.ndarray, NODE: dict}


class ColumnTable:
    """The fleet's side: defines columns for the keys it sees, and reads them as batched infos."""

    def __init__(self, area: Array, n_envs: int) -> None:
        self._area, self._n_envs, self._used = area, n_envs, 0
        self._columns: list[_Column] = []
        self._known: dict[Path, set[tuple[Any, ...]]] = {}  # the kinds of values that each key has columns for

    @property
    def count(self) -> int:
        return len(self._columns)

    @property
    def definitions(self) -> list[ColumnDefinition]:
        return [column.definition for column in self._columns]

    def learn(self, info: dict[str, Any], path: Path = ()) -> None:
        """Define a column for every new key of `info`, if its value can have one and there is room."""
        for key, value in info.items():
            kind = _kind_of(value)
            here = (*path, key)
            if kind is None or not isinstance(key, str) or key == "final_obs":  # do not split an observation
                continue
            kinds = self._known.setdefault(here, set())
            new = kind not in kinds and len(kinds) < MOST_KINDS and len(self._columns) < MOST_COLUMNS
            if new and all((known[0] == NODE) == (kind[0] == NODE) for known in kinds):  # else it is sent as an object
                self._define(here, *kind)
            if kind[0] == NODE and kind in kinds:
                self.learn(value, here)

    def _define(self, path: Path, kind: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        mask_offset = self._used
        offset = _align(mask_offset + self._n_envs)
        count = 0 if kind == NODE else self._n_envs * int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if offset + count > len(self._area):
            return
        self._used = _align(offset + count)
        definition = ColumnDefinition(path, kind, dtype.str, shape, mask_offset, offset)
        self._columns.append(_Column(definition, self._area, self._n_envs))
        self._known[path].add((kind, dtype, shape))

    def read(self, present: int, rows: list[slice], infos: dict[str, Any]) -> None:
        """Add the columns whose bit is set in `present` to `infos`, for the environments in `rows`."""
        for bit, column in enumerate(self._columns):
            if not present >> bit & 1:
                continue
            target, key, mask_key = infos, column.key, column.mask_key
            for parent in column.parents:
                target = target.setdefault(parent, {})
            mask = _take(column.mask, rows)
            if column.kind == NODE:
                target.setdefault(key, {})
            elif key not in target:
                target[key] = _take(column.values, rows)
            else:
                target[key] = _merge(target[key], _take(column.values, rows), mask)
            target[mask_key] = mask | target[mask_key] if mask_key in target else mask


class ColumnWriter:
    """A group's side: writes the infos of its environments into the columns that it knows."""

    def __init__(self, area: Array, n_envs: int, start: int, stop: int) -> None:
        self._area, self._n_envs = area, n_envs
        self._start, self._rows = start, slice(start, stop)
        self._everyone = list(range(stop - start))
        self._no_marks, self._all_marks = bytes(stop - start), b"\1" * (stop - start)
        self._columns: list[_Column] = []
        self._by_parent: dict[Path, dict[str, list[tuple[int, _Column]]]] = {}  # keys inside each dictionary
        self._newest: dict[str, tuple[_Column, Array, Any, int]] = {}  # newest column of each top-level key
        self.present = 0  # a bit per column that some environment of the group has written in this step

    def define(self, definitions: list[ColumnDefinition]) -> None:
        for bit in range(len(self._columns), len(definitions)):
            column = _Column(definitions[bit], self._area, self._n_envs)
            self._columns.append(column)
            self._clear(1 << bit)  # the rows may be those of a dead worker
            *parents, key = definitions[bit].path
            siblings = self._by_parent.setdefault(tuple(parents), {})
            siblings.setdefault(key, []).append((1 << bit, column))
            if not parents and column.kind != NODE:
                rows = self._rows
                self._newest[key] = (column, column.values[rows], column.mask_cells[rows], 1 << bit)

    def write(self, infos: list[tuple[int, dict[str, Any]]]) -> list[tuple[int, dict[str, Any]]]:
        """Store the infos of one step, as (environment of the group, info) pairs; return the parts without a column.

        Values that the last step wrote and this one does not are set to zero.
        """
        if infos and self._write_alike(infos):
            return []
        self._clear(self.present)
        self.present = 0
        left = [(i, self._put(self._start + i, info)) for i, info in infos]
        return [(i, info) for i, info in left if info]

    def _write_alike(self, infos: list[tuple[int, dict[str, Any]]]) -> bool:
        """Fast path for the usual case: all environments have the same keys, with numbers and arrays as values."""
        keys, newest = infos[0][1], self._newest
        if [i for i, _ in infos] != self._everyone or any(len(info) != len(keys) for _, info in infos):
            return False
        written, found = 0, []
        try:
            for key in keys:
                column, cells, marks, bit = newest[key]
                values = [info[key] for _, info in infos]
                if not column.takes(values):
                    return False
                found.append((cells, marks, values))
                written |= bit
        except KeyError:
            return False
        self._clear(self.present & ~written)
        for cells, marks, values in found:
            cells[:] = values
            marks[:] = self._all_marks
        self.present = written
        return True

    def _clear(self, present: int) -> None:
        """Set the values and masks of these columns to zero."""
        for bit, column in enumerate(self._columns if present else ()):
            if present >> bit & 1:
                column.mask_cells[self._rows] = self._no_marks
                if column.kind != NODE:
                    column.values[self._rows] = 0

    def _put(self, row: int, info: dict[str, Any], path: Path = ()) -> dict[str, Any] | None:
        """Store one environment's info in its row; return the parts without a column, or None."""
        rest: dict[str, Any] | None = None
        columns = self._by_parent.get(path) or {}
        for key, value in info.items():
            for bit, column in columns.get(key, ()):
                if column.takes([value]):
                    column.mask_cells[row] = 1
                    self.present |= bit
                    if column.kind != NODE:
                        column.cells[row] = value
                    elif left := self._put(row, value, (*path, key)):
                        rest = rest or {}
                        rest[key] = left
                    break
            else:
                rest = rest or {}
                rest[key] = value
        return rest


def add_info(infos: dict[str, Any], info: dict[str, Any], row: int, count: int) -> None:
    """Merge one environment's info into batched infos of `count` rows, as Gymnasium's vector API does."""
    for key, value in info.items():
        mask = infos.setdefault(f"_{key}", np.zeros(count, np.bool_))
        mask[row] = True
        if key == "final_obs":
            infos.setdefault(key, np.full(count, None, dtype=object))[row] = value
            continue
        if isinstance(value, dict):
            others = infos.setdefault(key, {})
            if isinstance(others, dict):
                add_info(others, value, row, count)
            else:
                infos[key] = _with_dictionary(others, value, mask, row)
            continue
        if key not in infos:
            infos[key] = _empty_like(value, count)
        try:
            if infos[key].dtype != object:
                infos[key] = _widen(infos[key], value, mask, row)
        except AttributeError:  # other environments have dictionaries
            infos[key] = _split(infos[key], mask, row)
        infos[key][row] = value


def _with_dictionary(array: Array, value: dict[str, Any], mask: Array, row: int) -> Array:
    """Values of other environments with the dictionary of one, or with another part of it."""
    objects = array if array.dtype == object else _widen(array, value, mask, row)
    objects[row] = _joined(objects[row], value)
    return objects


def _split(batch: dict[str, Any], mask: Array, row: int) -> Array:
    """Batched dictionaries as an array of objects, for a key that has other values too; without that of `row`."""
    objects = np.full(len(mask), None, dtype=object)
    for i in np.flatnonzero(mask).tolist():
        if i != row:
            objects[i] = _row_of(batch, i)
    return objects


def _row_of(batch: dict[str, Any], row: int) -> dict[str, Any]:
    """The dictionary of one environment, from batched ones."""
    keys = [key for key in batch if f"_{key}" in batch and batch[f"_{key}"][row]]
    return {key: _row_of(batch[key], row) if isinstance(batch[key], dict) else batch[key][row] for key in keys}


def _joined(one: Any, other: Any) -> Any:
    """The second value; two parts of one dictionary are put together."""
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return other
    return {**one, **{key: _joined(one.get(key), value) for key, value in other.items()}}


def _empty_like(value: Any, count: int) -> Array:
    if isinstance(value, np.ndarray):
        return np.zeros((count, *value.shape), dtype=value.dtype)
    kind = _kind_of(value)
    return np.full(count, None, dtype=object) if kind is None else np.zeros(count, dtype=kind[1])


def _widen(array: Array, value: Any, mask: Array, row: int) -> Array:
    """Return the array, or one that can also hold `value`: with a wider number type, or of objects."""
    kind = _kind_of(value)
    if kind is not None and kind[0] != NODE and kind[2] == array.shape[1:] and array.dtype.kind in "biuf":
        return array if kind[1] == array.dtype else array.astype(np.result_type(array.dtype, kind[1]))
    objects = np.full(len(array), None, dtype=object)
    for i in np.flatnonzero(mask):
        if i != row:
            objects[i] = array[i]
    return objects


def _merge(array: Array, more: Array, mask: Array) -> Array:
    """Merge the values of one key from two columns."""
    if array.shape != more.shape:
        merged = np.full(len(array), None, dtype=object)
        merged[:] = list(array)
    else:
        merged = array.astype(np.result_type(array, more))
    for row in np.flatnonzero(mask):
        merged[row] = more[row]
    return merged


def _take(array: Array, rows: list[slice]) -> Array:
    return array[rows[0]].copy() if len(rows) == 1 else np.concatenate([array[part] for part in rows])


def _align(offset: int) -> int:
    return -(-offset // 64) * 64
