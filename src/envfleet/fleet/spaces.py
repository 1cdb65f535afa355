"""Spaces as flat arrays: the leaves of a space, and how values are written to and read from them.

A *leaf* is a Box, Discrete, MultiDiscrete or MultiBinary: a fixed number of bytes, stored in the fleet's
block as one array `[env, ...]`. Anything else (Text, Graph, Sequence, OneOf, a user's own space) is an
*object leaf*: its values are sent as Python objects, which is slower, and batched as a tuple, as in Gymnasium.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

__all__ = [
    "Array",
    "BatchWriter",
    "Leaf",
    "as_array",
    "bounds_of",
    "casts",
    "expected_text",
    "flat_mask",
    "leaves_of",
    "outside_text",
    "pick",
    "read_rows",
    "rebuild",
    "row_of",
]

Array = np.ndarray[Any, Any]
Path = tuple[str | int, ...]
FEW = 16  # up to this many numbers are compared one by one
_FIXED = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


@dataclass(frozen=True)
class Leaf:
    """One part of a space, stored as one array, or as objects if `fixed` is False."""

    path: Path
    space: spaces.Space[Any]
    fixed: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.space.shape or ())

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.space.dtype)

    @property
    def name(self) -> str:
        return "/".join(map(str, self.path))


def leaves_of(space: spaces.Space[Any], path: Path = ()) -> list[Leaf]:
    """The leaves of a (nested) space in the order of its keys."""
    if isinstance(space, spaces.Dict):
        return [leaf for key, sub in space.spaces.items() for leaf in leaves_of(sub, (*path, key))]
    if isinstance(space, spaces.Tuple):
        return [leaf for key, sub in enumerate(space.spaces) for leaf in leaves_of(sub, (*path, key))]
    return [Leaf(path, space, type(space) in _FIXED)]


def pick(value: Any, path: Path) -> Any:
    """The part of a nested value that belongs to the leaf at `path`."""
    for key in path:
        value = value[key]
    return value


def rebuild(space: spaces.Space[Any], parts: dict[Path, Any], path: Path = ()) -> Any:
    """Build a nested value with the structure of `space` from the values of its leaves."""
    if isinstance(space, spaces.Dict):
        return {key: rebuild(sub, parts, (*path, key)) for key, sub in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(rebuild(sub, parts, (*path, key)) for key, sub in enumerate(space.spaces))
    return parts[path]


def read_rows(space: spaces.Space[Any], arrays: dict[Path, Array]) -> list[Any]:
    """Split batched leaves into one value per environment, as copies.

    An environment may keep its action, and a view into the fleet's block would change later.
    """
    if () in arrays:
        return list(arrays[()].copy())
    rows = {path: list(array.copy()) for path, array in arrays.items()}
    count = len(next(iter(rows.values())))
    return [rebuild(space, {path: values[i] for path, values in rows.items()}) for i in range(count)]


def row_of(array: Array, index: int) -> Any:
    """Copy of one row: an array, or a number for one-dimensional arrays."""
    value = array[index]
    return value.copy() if isinstance(value, np.ndarray) else value


def flat_mask(mask: Any) -> Array:
    """The action mask as one array; for a MultiDiscrete, Gymnasium uses a tuple with one mask per part.

    A tuple of numbers is one mask.
    """
    if not isinstance(mask, tuple):
        return np.asarray(mask)
    return np.concatenate([np.atleast_1d(part) for part in mask], axis=-1)


class BatchWriter:
    """Writes one leaf of all environments of a group at once, and checks it against the space.

    It uses one NumPy call per group instead of one per environment: for small observations the calls cost more than
    the bytes. `write` returns False if any value does not fit; the caller then checks the values one by one.
    """

    def __init__(
        self,
        leaf: Leaf,
        outputs: Sequence[Array],
        *,
        validate: bool,
        own_spaces: Sequence[spaces.Space[Any]] | None = None,
    ) -> None:
        self.leaf = leaf
        self._own_spaces = own_spaces  # one per environment, if their bounds differ
        self.outputs = list(outputs)  # one array [env, ...] per slot
        count = len(self.outputs[0])
        self._shape = leaf.shape
        scalar = leaf.shape == ()
        self._flat = [out.reshape(-1) for out in self.outputs]
        self._joined = self._flat if scalar else [o.reshape(count * leaf.shape[0], *leaf.shape[1:]) for o in outputs]
        self._casting: Literal["safe", "same_kind"] = "safe"
        self._gather = self._write_scalars if scalar else self._write_arrays
        if len(leaf.shape) == 1 and leaf.dtype.char in "bBhHiIlLqQfd":
            self._rows = [[row.data for row in out] for out in self.outputs]
            self._gather = self._write_vectors
        self._checks = self._bound_checks(count) if validate else []
        self._verdict = np.empty(len(self._flat[0]), np.bool_) if self._checks else None
        # A few numbers are compared one by one, which is faster than two NumPy calls.
        self._few: list[memoryview[Any]] | None = None
        self._limits: list[tuple[Any, Any]] = []
        if self._checks and len(self._flat[0]) <= FEW and leaf.dtype.char in "bBhHiIlLqQfd":
            self._few = [flat.data for flat in self._flat]
            bounds = [np.broadcast_to(bound, (count, *leaf.shape)).reshape(-1) for bound in self._bounds()]
            self._limits = list(zip(bounds[0].tolist(), bounds[1].tolist(), strict=True))

    def _bounds(self) -> tuple[Array, Array]:
        """Lowest and highest allowed values, for one environment or [env, ...]."""
        if self._own_spaces is None:
            return bounds_of(self.leaf.space)
        lows, highs = zip(*map(bounds_of, self._own_spaces), strict=True)
        shape = self.leaf.shape
        return tuple(np.stack([np.broadcast_to(bound, shape) for bound in bounds]) for bounds in (lows, highs))  # type: ignore[return-value]

    def _bound_checks(self, count: int) -> list[tuple[Callable[..., Any], Array]]:
        """Comparisons that every element must pass; NaN fails all of them."""
        if not self._flat[0].size:
            return []
        low, high = self._bounds()
        checks: list[tuple[Callable[..., Any], Array]] = []
        least, most = _extremes(self.leaf.dtype)
        if np.any(low != least) or (self.leaf.dtype.kind == "f" and np.all(high == most)):
            checks.append((np.greater_equal, low))
        if np.any(high != most):
            checks.append((np.less_equal, high))
        shape = (count, *self.leaf.shape)
        return [(test, np.ascontiguousarray(np.broadcast_to(bound, shape)).reshape(-1)) for test, bound in checks]

    def write(self, values: list[Any], slot: int) -> bool:
        """Store `values` (one per environment) in the slot's array; return False if one does not fit."""
        return self._gather(values, slot) and self._inside(slot)

    def write_rows(self, values: Any, slot: int, rows: Array | None) -> bool:
        """As `write`, from one array `[env, ...]`; with a mask `rows`, of these environments only."""
        out = self.outputs[slot]
        try:
            if values.shape != out.shape:
                return False
            with np.errstate(over="raise"):  # reject numbers that the dtype cannot hold
                where = True if rows is None else rows.reshape(-1, *[1] * len(self._shape))
                np.copyto(out, values, casting=self._casting, where=where)
        except (AttributeError, FloatingPointError, TypeError):
            return False
        return self._inside(slot)

    def _inside(self, slot: int) -> bool:
        """Whether all values in the slot's array are inside the bounds."""
        if self._few is not None:
            for value, (low, high) in zip(self._few[slot], self._limits, strict=True):  # noqa: SIM110 (all() is slower)
                if not low <= value <= high:
                    return False
            return True
        flat = self._flat[slot]
        for test, bound in self._checks:
            test(flat, bound, self._verdict)
            if b"\0" in self._verdict.tobytes():  # type: ignore[union-attr]
                return False
        return True

    def _write_arrays(self, values: list[Any], slot: int) -> bool:
        shape = self._shape
        try:
            for value in values:
                if value.shape != shape:
                    return False
            np.concatenate(values, out=self._joined[slot], casting=self._casting)
        except (AttributeError, FloatingPointError, TypeError, ValueError):
            return False
        return True

    def allow_casts(self) -> None:
        """From now on, also write other dtypes on the fast path, after one of them was accepted.

        Not for integers: NumPy wraps those that the dtype cannot hold.
        """
        if self._shape != () and self.leaf.dtype.kind == "f":
            self._casting, self._gather = "same_kind", self._write_casts

    def _write_casts(self, values: list[Any], slot: int) -> bool:
        with np.errstate(over="raise"):  # reject numbers that the dtype cannot hold
            return self._write_arrays(values, slot)

    def _write_vectors(self, values: list[Any], slot: int) -> bool:
        """Copy the bytes of each value; a memoryview only accepts values of its own type and length."""
        try:
            for row, value in zip(self._rows[slot], values, strict=True):
                row[:] = value
        except (TypeError, ValueError):
            return self._write_arrays(values, slot)
        return True

    def _write_scalars(self, values: list[Any], slot: int) -> bool:
        try:
            array = np.array(values)
            if array.ndim != 1 or not casts(array.dtype, self.leaf.dtype):
                return False
            out = self.outputs[slot]
            out[...] = array
            if array.dtype != out.dtype and (out != array).any():  # the dtype is too small for the integer
                return False
        except (TypeError, ValueError, OverflowError):
            return False
        return True


def casts(given: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    """Whether a number of dtype `given` may be stored in a leaf of dtype `wanted` without a shape."""
    if wanted.kind in "iu":  # Python integers arrive as int64, whatever the width of the space's dtype
        return given.kind in "iu"
    return np.can_cast(given, wanted)


def _extremes(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return info.min, info.max
    if dtype.kind == "b":
        return False, True
    return -np.inf, np.inf


def bounds_of(space: spaces.Space[Any]) -> tuple[Array, Array]:
    """Lowest and highest allowed values, broadcastable to the leaf's shape."""
    if isinstance(space, spaces.Box):
        return space.low, space.high
    if isinstance(space, spaces.Discrete):
        return np.asarray(space.start), np.asarray(space.start + space.n - 1)
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    return np.zeros((), np.int8), np.ones((), np.int8)  # MultiBinary


def expected_text(leaf: Leaf, received: str) -> str:
    where = f" at {leaf.name!r}" if leaf.path else ""
    return f"expected{where} {leaf.space}, received {received}"


def as_array(value: Any) -> Array | None:
    """`value` as an array, or None if NumPy cannot convert it (e.g. lists of different lengths)."""
    try:
        return np.asarray(value)
    except Exception:  # a user's object may raise anything here
        return None


def outside_text(leaf: Leaf, array: Array, inside: Array) -> str:
    """Describe the first value that is NaN or not `inside` the bounds of a leaf."""
    if array.shape == ():
        return "NaN" if array != array else f"{array.item()!r}, which is out of its bounds"
    at = array != array
    if at.any():
        return f"NaN at index {tuple(map(int, np.argwhere(at)[0]))}"
    index = tuple(map(int, np.argwhere(~inside)[0]))
    low, high = bounds_of(leaf.space)
    low, high = np.broadcast_to(low, leaf.shape)[index], np.broadcast_to(high, leaf.shape)[index]
    return f"{array[index]} at index {index}, which is outside [{low}, {high}]"
