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

from envfleet.fleet.spaces import Array, Leaf, as_array, bounds_of, expected_text, outside_text, short

__all__ = ["NUMBERS", "ROUNDING_STEPS", "BadReward", "Deviation", "Misfit", "Validation", "fit"]

_log = logging.getLogger("envfleet")

ROUNDING_STEPS = 4  # a bound may be missed by this many times the dtype's epsilon, relative to the larger bound
# Types of rewards that need no further check.
NUMBERS = frozenset({float, int, bool, *(np.dtype(code).type for code in "?bBhHiIlLqQefd")})


class Misfit(Exception):
    """A value cannot be stored in its leaf; the message says why."""


class BadReward(Exception):
    """A reward is not a number; the message says what was received."""


class Deviation(NamedTuple):
    """An accepted deviation from the declared space."""

    kind: str
    what: str
    fix: str


@dataclass(frozen=True)
class Validation:
    """The mode (`strict`, `warn` or `off`) and the deviations reported so far; one per process and fleet."""

    mode: str
    quiet: bool = False  # reports nothing
    _reported: dict[str, Deviation] = field(default_factory=dict, repr=False, compare=False)

    @property
    def strict(self) -> bool:
        return self.mode == "strict"

    @property
    def checks_values(self) -> bool:
        """Whether bounds and NaN are checked."""
        return self.mode != "off"

    def report(self, env: int, deviation: Deviation) -> None:
        """Log a deviation, once for each kind."""
        if self.quiet or self.mode != "warn" or self._reported.setdefault(deviation.kind, deviation) is not deviation:
            return  # setdefault checks and sets in one call, because threads share the dictionary
        _log.warning("environment %d returned %s (reported once)\nhint: %s", env, deviation.what, deviation.fix)

    def number(self, env: int, reward: Any) -> float:
        """Convert a reward of an unusual type to a float; raise BadReward if that is impossible."""
        array = as_array(reward)
        if array is None or array.dtype.kind not in "biuf" or array.size != 1:
            shape = "" if array is None or array.shape == () else f" of shape {array.shape}"
            raise BadReward(f"{short(reward)} ({type(reward).__name__}{shape})")
        if array.ndim and self.strict:
            raise BadReward(f"{short(reward)} ({type(reward).__name__} of shape {array.shape})")
        if array.ndim:
            what = f"an array of shape {array.shape} as the reward, expected a number; its only element is used"
            self.report(env, Deviation("reward", what, "return float(reward) from step"))
        return float(array.item())


def fit(leaf: Leaf, value: Any, *, bounds: bool) -> tuple[Array, list[Deviation]]:
    """Convert `value` to the leaf's dtype; return it with the accepted deviations, or raise Misfit."""
    array = as_array(value)
    if array is None or (array.dtype == object and not isinstance(value, np.ndarray)):
        raise Misfit(expected_text(leaf, f"{type(value).__name__} {short(value)}"))
    if array.shape != leaf.shape:
        raise Misfit(expected_text(leaf, f"shape {array.shape} (shape {leaf.shape} was declared)"))
    if not _same_kind(array.dtype, leaf.dtype):
        raise Misfit(expected_text(leaf, f"dtype {array.dtype} (dtype {leaf.dtype} was declared)"))
    deviations = [_of_type(leaf, value, array)]
    with np.errstate(over="ignore"):
        stored = array.astype(leaf.dtype)
    if bounds:
        deviations.append(_of_bounds(leaf, array))
        if leaf.dtype.kind == "f" and (np.isinf(stored) & np.isfinite(array)).any():
            largest = np.finfo(leaf.dtype).max
            raise Misfit(expected_text(leaf, f"a value beyond {largest}, the largest that {leaf.dtype} holds"))
    return stored, [deviation for deviation in deviations if deviation is not None]


def _same_kind(given: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    if given.kind in "iu" and wanted.kind in "iu":  # the bounds check tells whether the values fit
        return True
    return given.kind in "biuf" and np.can_cast(given, wanted, "same_kind")


def _of_type(leaf: Leaf, value: Any, array: Array) -> Deviation | None:
    where = f"observation at {leaf.name!r}" if leaf.path else "observation"
    if not isinstance(value, np.ndarray | np.generic):
        if leaf.shape == ():  # a plain number has no dtype
            return None
        what = f"an {where} of type {type(value).__name__}, expected an array of dtype {leaf.dtype}; it is converted"
        return Deviation("type", what, f"return np.asarray(..., np.{leaf.dtype}) for the {where}")
    if np.can_cast(array.dtype, leaf.dtype):
        return None
    what = f"an {where} of dtype {array.dtype}, expected {leaf.dtype}; it is converted"
    fix = f"return it with .astype(np.{leaf.dtype}), or declare dtype=np.{array.dtype} in observation_space"
    return Deviation("dtype", what, fix)


def _of_bounds(leaf: Leaf, array: Array) -> Deviation | None:
    """Return a deviation if a value misses a bound by a rounding error; raise Misfit if by more, or for NaN."""
    low, high = bounds_of(leaf.space)
    inside = (array >= low) & (array <= high)
    if inside.all():
        return None
    if leaf.dtype.kind != "f":
        raise Misfit(expected_text(leaf, outside_text(leaf, array, inside)))
    slack = _slack(low.astype(np.float64), high.astype(np.float64), float(np.finfo(leaf.dtype).eps))
    nearly = (array >= low - slack) & (array <= high + slack)
    if not nearly.all():
        raise Misfit(expected_text(leaf, outside_text(leaf, array, nearly)))
    where = f"observation at {leaf.name!r}" if leaf.path else "observation"
    what = f"an {where} with {outside_text(leaf, array, inside)} by a rounding error; it is kept as it is"
    return Deviation("bounds", what, "clip it: np.clip(observation, space.low, space.high)")


def _slack(low: Array, high: Array, epsilon: float) -> Array:
    """Allowed rounding error of each element: relative to its larger finite bound, or to 1 if that is 0."""
    sizes = [np.where(np.isfinite(bound), np.abs(bound), 0.0) for bound in (low, high)]
    size = np.maximum(*sizes)
    slack: Array = ROUNDING_STEPS * epsilon * np.where(size == 0.0, 1.0, size)
    return slack
