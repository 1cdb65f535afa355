"""Infos without pickles: keys that come again get a column in the fleet's block.

An environment's info is a free dictionary, so its first values travel as Python objects. The fleet then
gives every key with a number or a fixed-shape array a column `[env, ...]`, tells the groups, and from the
next step on they write there. Keys of another type, or one that changes its type, go on as objects.
Both ways end in the dictionary that Gymnasium's vector environments give, `_key` masks included.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["ColumnDefinition", "ColumnTable", "ColumnWriter", "add_info"]

Array = np.ndarray[Any, Any]
Path = tuple[str, ...]
MOST_COLUMNS = 60  # their presence is a bit of one 64-bit word
NODE = "node"  # a dictionary inside the info: only its mask matters


@dataclass(frozen=True)
class ColumnDefinition:
    """One info key with a place in the block; `kind` is the exact type a value must have."""

    path: Path
    kind: str  # "int", "float", "bool", "np.<name>", "array" or NODE
    dtype: str
    shape: tuple[int, ...]
    mask_offset: int
    offset: int


def _kind_of(value: Any) -> tuple[str, np.dtype[Any], tuple[int, ...]] | None:
    """How Gymnasium batches a value: kind, dtype and shape; None where it makes an object array."""
    kind = type(value)
    if kind in (int, float, bool):
        return kind.__name__, np.dtype(kind), ()
    if isinstance(value, np.number):
        return f"np.{value.dtype.name}", value.dtype, ()
    if kind is np.ndarray and value.dtype.kind in "biuf":
        return "array", value.dtype, value.shape
    if kind is dict:
        return NODE, np.dtype(np.bool_), ()
    return None


class _Column:
    """A definition with its arrays: the mask and the values of all environments."""

    def __init__(self, definition: ColumnDefinition, area: Array, n_envs: int) -> None:
        self.definition = definition
        self.kind, self.shape = definition.kind, definition.shape
        self.dtype = np.dtype(definition.dtype)
        self.mask = area[definition.mask_offset : definition.mask_offset + n_envs].view(np.bool_)
        count = n_envs * int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize
        raw = area[definition.offset : definition.offset + count]
        self.values = raw.view(self.dtype).reshape(n_envs, *self.shape)

    def takes(self, value: Any) -> bool:
        kind = type(value)
        if kind is np.ndarray:
            return self.kind == "array" and value.shape == self.shape and value.dtype == self.dtype
        if isinstance(value, np.number):
            return self.kind == f"np.{value.dtype.name}"
        return self.kind == kind.__name__


class ColumnTable:
    """The fleet's side: defines columns for keys it has seen and reads them back as batched infos."""

    def __init__(self, area: Array, n_envs: int) -> None:
        self._area, self._n_envs, self._used = area, n_envs, 0
        self._columns: list[_Column] = []
        self._known: set[Path] = set()

    @property
    def count(self) -> int:
        return len(self._columns)

    @property
    def definitions(self) -> list[ColumnDefinition]:
        return [column.definition for column in self._columns]

    def learn(self, info: dict[str, Any], path: Path = ()) -> None:
        """Defines a column for every new key of `info` whose values can have one and that fits."""
        for key, value in info.items():
            kind = _kind_of(value)
            here = (*path, key)
            if kind is None or not isinstance(key, str):
                continue
            if here not in self._known and len(self._columns) < MOST_COLUMNS:
                self._define(here, *kind)
            if kind[0] == NODE and here in self._known:
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
        self._known.add(path)

    def read(self, present: int, rows: list[slice], infos: dict[str, Any]) -> None:
        """Adds the columns whose bit is set in `present` to `infos`, for the environments in `rows`."""
        for bit, column in enumerate(self._columns):
            if not present >> bit & 1:
                continue
            target = infos
            for key in column.definition.path[:-1]:
                target = target.setdefault(key, {})
            key = column.definition.path[-1]
            if column.kind == NODE:
                target.setdefault(key, {})
            else:
                target[key] = _take(column.values, rows)
            target[f"_{key}"] = _take(column.mask, rows)


class ColumnWriter:
    """A group's side: writes infos of its environments into the columns it has been told of."""

    def __init__(self, area: Array, n_envs: int, start: int, stop: int) -> None:
        self._area, self._n_envs = area, n_envs
        self._start, self._rows = start, slice(start, stop)
        self._columns: list[_Column] = []
        self._by_path: dict[Path, tuple[int, _Column]] = {}
        self._by_key: dict[str, tuple[int, _Column]] = {}
        self.present = 0  # a bit per column that some environment of the group has written in this step

    def define(self, definitions: list[ColumnDefinition]) -> None:
        for bit in range(len(self._columns), len(definitions)):
            column = _Column(definitions[bit], self._area, self._n_envs)
            self._columns.append(column)
            self._by_path[definitions[bit].path] = (bit, column)
            if len(definitions[bit].path) == 1 and column.kind != NODE:
                self._by_key[definitions[bit].path[0]] = (bit, column)

    def clear(self) -> None:
        """Forgets the last step: values and masks of what was written then become zero."""
        bit = 0
        while self.present:
            if self.present & 1:
                column = self._columns[bit]
                column.mask[self._rows] = False
                if column.kind != NODE:
                    column.values[self._rows] = 0
            self.present >>= 1
            bit += 1

    def put(self, index: int, info: dict[str, Any]) -> dict[str, Any] | None:
        """Stores the info of environment `index` of the group; returns what has no column, or None."""
        row = self._start + index
        rest: dict[str, Any] = {}
        for key, value in info.items():
            known = self._by_key.get(key)
            if known is not None and known[1].takes(value):
                bit, column = known
                column.values[row] = value
                column.mask[row] = True
                self.present |= 1 << bit
            elif type(value) is dict and (key,) in self._by_path:
                left = self._put_nested((key,), value, row)
                if left:
                    rest[key] = left
            else:
                rest[key] = value
        return rest or None

    def _put_nested(self, path: Path, info: dict[str, Any], row: int) -> dict[str, Any]:
        bit, node = self._by_path[path]
        if node.kind != NODE:
            return info
        node.mask[row] = True
        self.present |= 1 << bit
        rest: dict[str, Any] = {}
        for key, value in info.items():
            here = (*path, key)
            known = self._by_path.get(here)
            if known is None:
                rest[key] = value
            elif known[1].kind == NODE and type(value) is dict:
                left = self._put_nested(here, value, row)
                if left:
                    rest[key] = left
            elif known[1].takes(value):
                known[1].values[row] = value
                known[1].mask[row] = True
                self.present |= 1 << known[0]
            else:
                rest[key] = value
        return rest


def add_info(infos: dict[str, Any], info: dict[str, Any], row: int, count: int) -> None:
    """Merges one environment's info into batched infos of `count` rows, as Gymnasium's vector API does."""
    for key, value in info.items():
        mask = infos.setdefault(f"_{key}", np.zeros(count, np.bool_))
        mask[row] = True
        if key == "final_obs":
            infos.setdefault(key, np.full(count, None, dtype=object))[row] = value
            continue
        if isinstance(value, dict):
            add_info(infos.setdefault(key, {}), value, row, count)
            continue
        if key not in infos:
            infos[key] = _empty_like(value, count)
        array = infos[key]
        try:
            array[row] = value
        except (TypeError, ValueError, OverflowError):  # another type or shape than the others': keep objects
            infos[key] = array = _as_objects(array, mask, row)
            array[row] = value


def _empty_like(value: Any, count: int) -> Array:
    if isinstance(value, np.ndarray):
        return np.zeros((count, *value.shape), dtype=value.dtype)
    kind = _kind_of(value)
    return np.full(count, None, dtype=object) if kind is None else np.zeros(count, dtype=kind[1])


def _as_objects(array: Array, mask: Array, row: int) -> Array:
    objects = np.full(len(array), None, dtype=object)
    for i in np.flatnonzero(mask):
        if i != row:
            objects[i] = array[i]
    return objects


def _take(array: Array, rows: list[slice]) -> Array:
    return array[rows[0]].copy() if len(rows) == 1 else np.concatenate([array[part] for part in rows])


def _align(offset: int) -> int:
    return -(-offset // 64) * 64
