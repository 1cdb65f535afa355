"""Compares values with their spaces, and with each other."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from envfleet.fleet.spaces import Leaf
from envfleet.fleet.validation import Misfit, fit

__all__ = ["Mismatch", "fingerprint", "kind_of", "mismatch", "one_line", "short"]


class Mismatch(NamedTuple):
    """Why a value is not in its space (received and expected), and the fix."""

    what: str
    fix: str
    tolerated: bool = False  # a fleet accepts it with a warning


def mismatch(space: Any, value: Any, name: str) -> Mismatch | None:
    """The first reason why `value` is not in `space`, or None if it is; `name` names the value in messages."""
    if isinstance(space, spaces.Dict):
        return _dict_mismatch(space, value, name)
    if isinstance(space, spaces.Tuple):
        return _tuple_mismatch(space, value, name)
    if isinstance(space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary):
        found = _array_mismatch(space, value, name)
        if found is None or not _tolerated(space, value):
            return found
        return Mismatch(found.what, f"{found.fix}; a fleet accepts it with a warning, unless validate is strict", True)
    if not space.contains(value):
        fix = f"return a member of the declared space for {name}, or declare the space that it has"
        return Mismatch(f"{name} is {short(value)}, expected a member of {short(space)}", fix)
    return None


def _dict_mismatch(space: spaces.Dict, value: Any, name: str) -> Mismatch | None:
    if not isinstance(value, Mapping):
        what = f"{name} is {kind_of(value)}, expected a dict with the keys {list(space.spaces)}"
        return Mismatch(what, f"return a dict with one entry per key of the Dict space ({name})")
    if set(value) != set(space.spaces):
        what = f"{name} has the keys {sorted(map(str, value))}, expected {sorted(map(str, space.spaces))}"
        return Mismatch(what, f"return exactly the keys that the Dict space declares ({name})")
    found = (mismatch(part, value[key], f"{name}[{key!r}]") for key, part in space.spaces.items())
    return next((each for each in found if each), None)


def _tuple_mismatch(space: spaces.Tuple[Any], value: Any, name: str) -> Mismatch | None:
    if not isinstance(value, tuple) or len(value) != len(space.spaces):
        received = f"a tuple of {len(value)}" if isinstance(value, tuple) else kind_of(value)
        what = f"{name} is {received}, expected a tuple of {len(space.spaces)}"
        return Mismatch(what, f"return a tuple with one entry per part of the Tuple space ({name})")
    parts = zip(space.spaces, value, strict=True)
    found = (mismatch(part, each, f"{name}[{index}]") for index, (part, each) in enumerate(parts))
    return next((each for each in found if each), None)


def _array_mismatch(
    space: spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary, value: Any, name: str
) -> Mismatch | None:
    expected = f"an array of shape {space.shape} and dtype {space.dtype}"
    if space.shape == () and isinstance(value, int | float):
        value = np.asarray(value, space.dtype)  # a plain number is as good as a zero-dimensional array
    if not isinstance(value, np.ndarray | np.generic):
        fix = f"return np.asarray(..., dtype=np.{space.dtype}) for {name}"
        return Mismatch(f"{name} is {kind_of(value)}, expected {expected}", fix)
    if value.shape != space.shape:
        fix = f"return {name} in its declared shape, or declare the shape that it has"
        return Mismatch(f"{name} has shape {value.shape}, expected {space.shape}", fix)
    if not np.can_cast(value.dtype, space.dtype):
        fix = f"convert {name} with .astype(np.{space.dtype}), or declare dtype=np.{value.dtype} in its space"
        return Mismatch(f"{name} has dtype {value.dtype}, expected {space.dtype}", fix)
    return _bounds_mismatch(space, np.asarray(value), name)


def _tolerated(space: Any, value: Any) -> bool:
    try:
        fit(Leaf((), space, fixed=True), value, bounds=True)
    except Misfit:
        return False
    return True


def _bounds_mismatch(space: Any, value: np.ndarray[Any, Any], name: str) -> Mismatch | None:
    if value.dtype.kind in "fc" and np.isnan(value).any():
        what = f"{name} has {int(np.isnan(value).sum())} NaN in {value.size} values, expected numbers"
        return Mismatch(what, f"find what makes {name} NaN: a division by zero, a simulation that blew up")
    low, high = _bounds(space)
    outside = (value < low) | (value > high)
    if not outside.any():
        return None
    index = tuple(int(axis) for axis in np.argwhere(outside)[0])
    least, most = (np.broadcast_to(bound, value.shape)[index] for bound in (low, high))
    where = f" at index {list(index)}" if index else ""
    what = f"{name} is {value[index]}{where}, expected {least} to {most}"
    return Mismatch(what, f"widen the bounds of the space to all values that {name} can take, or clip it")


def _bounds(space: Any) -> tuple[Any, Any]:
    if isinstance(space, spaces.Box):
        return space.low, space.high
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    return np.asarray(0), np.asarray(1)


def fingerprint(value: Any) -> bytes:
    """Digest that is equal for equal values; covers type, shape, dtype and bytes of all parts."""
    digest = hashlib.blake2b(digest_size=16)
    _feed(digest, value)
    return digest.digest()


def _feed(digest: hashlib.blake2b, value: Any) -> None:
    if isinstance(value, np.ndarray | np.generic) and value.dtype != object:
        digest.update(f"{value.shape}{value.dtype}".encode() + np.asarray(value).tobytes())
    elif isinstance(value, Mapping):
        for key in sorted(value, key=str):
            digest.update(str(key).encode())
            _feed(digest, value[key])
    elif isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim > 0):
        digest.update(f"{type(value).__name__}{len(value)}".encode())
        for part in value:
            _feed(digest, part)
    elif value is None or isinstance(value, str | bytes | int | float | complex):
        digest.update(repr(value).encode())
    else:  # a user's object: its repr may contain an address, so only its type counts
        digest.update(type(value).__qualname__.encode())


def kind_of(value: Any) -> str:
    """Type of a value with its article: 'a list', 'an int', 'None'."""
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def short(value: Any) -> str:
    """The repr of a value, on one line of at most 80 characters."""
    return one_line(repr(value))


def one_line(text: str) -> str:
    """The text on one line, cut at 80 characters."""
    joined = " ".join(text.split())
    return joined if len(joined) <= 80 else f"{joined[:77]}..."
