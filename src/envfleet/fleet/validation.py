"""Checks observations and rewards against the declared spaces, more or less strictly.

`warn` accepts deviations that Gymnasium's vector environments accept and that can be stored without a wrong value:
another dtype of the same kind, a list instead of an array, a bound missed by a rounding error, a reward in an array of
one element. It reports each kind once. NaN, wrong shapes, wrong kinds (floats for integers, objects) and values outside
the bounds are errors. `strict` makes all of these errors; `off` reports nothing and does not check bounds and NaN.

This code runs only after the fast check of a whole group has failed (`BatchWriter`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from envfleet.fleet.spaces import Array, Leaf, as_array, bounds_of, casts, outside_text
from envfleet.wording import shown

__all__ = ["NUMBERS", "ROUNDING_STEPS", "BadReward", "Deviation", "Misfit", "Validation", "fit"]

_log = logging.getLogger("envfleet")

ROUNDING_STEPS = 4  # a bound may be missed by this many times the dtype's epsilon, relative to the larger bound
# Types of rewards that need no further check.
NUMBERS = frozenset({float, int, bool, *(np.dtype(code).type for code in "?bBhHiIlLqQefd")})


class Misfit(Exception):
    """A value cannot be stored in its leaf; says what was received, and the fix."""

    def __init__(self, received: str, fix: str) -> None:
        super().__init__(received)
        self.received, self.fix = received, fix


class BadReward(Exception):
    """A reward is not a number; the message says what was received."""


class Deviation(NamedTuple):
    """An accepted deviation from the declared space: what was received, and the fix."""

    kind: str
    received: str
    fix: str


@dataclass(frozen=True)
class Validation:
    """The mode (`strict`, `warn` or `off`) and the deviations reported so far; one per process and fleet."""

    mode: str
    quiet: bool = False  # reports nothing
    _reported: dict[str, object] = field(default_factory=dict, repr=False, compare=False)

    @property
    def strict(self) -> bool:
        return self.mode == "strict"

    @property
    def checks_values(self) -> bool:
        """Whether bounds and NaN are checked."""
        return self.mode != "off"

    def report(self, env: int, kind: str, what: str, fix: str) -> None:
        """Log an accepted deviation, once for each kind."""
        this = object()
        if self.quiet or self.mode != "warn" or self._reported.setdefault(kind, this) is not this:
            return  # setdefault checks and sets in one call, because threads share the dictionary
        _log.warning("environment %d: %s; accepted (reported once)\nhint: %s", env, what, fix)

    def number(self, env: int, reward: Any) -> float:
        """Convert a reward of an unusual type to a float; raise BadReward if that is impossible."""
        array = as_array(reward)
        if array is None or array.dtype.kind not in "biuf" or array.size != 1:
            shape = "" if array is None or array.shape == () else f" of shape {array.shape}"
            raise BadReward(f"{shown(reward)} ({type(reward).__name__}{shape})")
        if array.ndim and self.strict:
            raise BadReward(f"{shown(reward)} ({type(reward).__name__} of shape {array.shape})")
        if array.ndim:
            what = f"expected a number as the reward, received an array of shape {array.shape}"
            self.report(env, "reward", what, "return float(reward) from step")
        return float(array.item())


def fit(leaf: Leaf, value: Any, *, bounds: bool) -> tuple[Array, list[Deviation]]:
    """Convert `value` to the leaf's dtype; return it with the accepted deviations, or raise Misfit."""
    array = as_array(value)
    if array is None or (array.dtype == object and not isinstance(value, np.ndarray)):
        raise Misfit(f"{type(value).__name__} {shown(value)}", _as_array(leaf))
    if array.shape != leaf.shape:
        raise Misfit(
            f"shape {array.shape} (shape {leaf.shape} was declared)",
            "return it in its declared shape, or declare the shape that it has",
        )
    if not _same_kind(array.dtype, leaf.dtype):
        raise Misfit(*_other_dtype(leaf, array))
    deviations = [_of_type(leaf, value, array)]
    with np.errstate(over="ignore"):
        stored = array.astype(leaf.dtype, copy=False)
    if bounds:
        deviations.append(_of_bounds(leaf, array))
        if stored.dtype.kind == "f" and stored.dtype != array.dtype and (np.isinf(stored) & np.isfinite(array)).any():
            largest = np.finfo(leaf.dtype).max
            received = f"a value beyond {largest}, the largest that {leaf.dtype} holds"
            raise Misfit(received, "scale it, or declare a larger dtype")
    return stored, [deviation for deviation in deviations if deviation is not None]


def _same_kind(given: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    if given.kind in "iu" and wanted.kind in "iu":  # the bounds check tells whether the values fit
        return True
    return given.kind in "biuf" and np.can_cast(given, wanted, "same_kind")


def _of_type(leaf: Leaf, value: Any, array: Array) -> Deviation | None:
    if not isinstance(value, np.ndarray | np.generic):
        if leaf.shape == ():  # a plain number has no dtype
            return None
        return Deviation("type", f"{type(value).__name__} {shown(value)}", _as_array(leaf))
    if (casts if leaf.shape == () else np.can_cast)(array.dtype, leaf.dtype):
        return None
    return Deviation("dtype", *_other_dtype(leaf, array))


def _as_array(leaf: Leaf) -> str:
    return f"return np.asarray(..., dtype=np.{leaf.dtype})"


def _other_dtype(leaf: Leaf, array: Array) -> tuple[str, str]:
    received = f"dtype {array.dtype} (dtype {leaf.dtype} was declared)"
    return received, f"return it with .astype(np.{leaf.dtype}), or declare dtype=np.{array.dtype} in its space"


def _of_bounds(leaf: Leaf, array: Array) -> Deviation | None:
    """Return a deviation if a value misses a bound by a rounding error; raise Misfit if by more, or for NaN."""
    low, high = bounds_of(leaf.space)
    inside = (array >= low) & (array <= high)
    if inside.all():
        return None
    if np.isnan(array).any():
        fix = "find what makes it NaN: a division by zero, a simulation that blew up"
        raise Misfit(outside_text(leaf, array, inside), fix)
    fix = "clip it (np.clip), or widen the bounds of the space to all values that it can take"
    if leaf.dtype.kind != "f":
        raise Misfit(outside_text(leaf, array, inside), fix)
    slack = _slack(low.astype(np.float64), high.astype(np.float64), float(np.finfo(leaf.dtype).eps))
    nearly = (array >= low - slack) & (array <= high + slack)
    if not nearly.all():
        raise Misfit(outside_text(leaf, array, nearly), fix)
    return Deviation("bounds", f"{outside_text(leaf, array, inside)} by a rounding error", fix)


def _slack(low: Array, high: Array, epsilon: float) -> Array:
    """Allowed rounding error of each element: relative to its larger finite bound, or to 1 if that is 0."""
    sizes = [np.where(np.isfinite(bound), np.abs(bound), 0.0) for bound in (low, high)]
    size = np.maximum(*sizes)
    slack: Array = ROUNDING_STEPS * epsilon * np.where(size == 0.0, 1.0, size)
    return slack
