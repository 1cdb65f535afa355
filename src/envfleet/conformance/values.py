"""Compares values with their spaces, and with each other."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from envfleet.fleet.spaces import Leaf, expected_text
from envfleet.fleet.validation import Misfit, fit
from envfleet.wording import shown

__all__ = ["Mismatch", "fingerprint", "kind_of", "mismatch"]


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
        return _array_mismatch(space, value, name)
    if not space.contains(value):
        fix = f"return a member of the declared space for {name}, or declare the space that it has"
        return Mismatch(f"{name} is {shown(value)}, expected a member of {shown(space)}", fix)
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


def _array_mismatch(space: spaces.Space[Any], value: Any, name: str) -> Mismatch | None:
    leaf = Leaf((), space, fixed=True)
    try:
        _, deviations = fit(leaf, value, bounds=True)
    except Misfit as misfit:
        return Mismatch(f"{name}: {expected_text(leaf, misfit.received)}", misfit.fix)
    if not deviations:
        return None
    _, received, fix = deviations[0]
    accepted = f"{fix}; a fleet accepts it with a warning, unless validate is strict"
    return Mismatch(f"{name}: {expected_text(leaf, received)}", accepted, tolerated=True)


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
