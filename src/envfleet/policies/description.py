"""Converts spaces to plain JSON data and back, so that a saved policy can be rebuilt without its environment.

Numbers keep all their digits. Infinite bounds are the strings "inf" and "-inf", because JSON has no infinity.
Importing this module does not load torch.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from envfleet.errors import SettingsError

__all__ = ["describe_space", "space_from"]

Array = np.ndarray[Any, Any]


def describe_space(space: spaces.Space[Any]) -> dict[str, Any]:
    """Return the space as plain JSON data; `space_from` rebuilds an equal space from it."""
    if isinstance(space, spaces.Dict):
        # Pairs, because the order of the keys is the order of the leaves, and a JSON object may be sorted.
        return {"type": "Dict", "spaces": [[key, describe_space(part)] for key, part in space.spaces.items()]}
    if isinstance(space, spaces.Tuple):
        return {"type": "Tuple", "spaces": [describe_space(part) for part in space.spaces]}
    kind = type(space)
    if kind is spaces.Box:
        assert isinstance(space, spaces.Box)
        return {
            "type": "Box",
            "low": _plain(space.low),
            "high": _plain(space.high),
            "shape": list(space.shape),
            "dtype": np.dtype(space.dtype).name,
        }
    if kind is spaces.Discrete:
        assert isinstance(space, spaces.Discrete)
        dtype = np.dtype(space.dtype).name
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start), "dtype": dtype}
    if kind is spaces.MultiDiscrete:
        assert isinstance(space, spaces.MultiDiscrete)
        dtype = np.dtype(space.dtype).name
        return {"type": "MultiDiscrete", "nvec": space.nvec.tolist(), "start": space.start.tolist(), "dtype": dtype}
    if kind is spaces.MultiBinary:
        assert isinstance(space, spaces.MultiBinary)
        return {"type": "MultiBinary", "n": np.array(space.n).tolist()}
    raise SettingsError(
        f"{space} cannot be described, expected Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple of them",
        hint="use a wrapper that turns it into one of these",
    )


def space_from(description: Mapping[str, Any]) -> spaces.Space[Any]:
    """Rebuild the space that `describe_space` described."""
    kind = description.get("type")
    try:
        return _built(kind, description)
    except (KeyError, TypeError, ValueError, AssertionError) as error:
        if isinstance(error, SettingsError):
            raise
        raise SettingsError(f"the description {dict(description)!r} is no {kind}: {error!r}") from error


def _built(kind: Any, description: Mapping[str, Any]) -> spaces.Space[Any]:
    if kind == "Dict":
        return spaces.Dict(OrderedDict((key, space_from(part)) for key, part in description["spaces"]))
    if kind == "Tuple":
        return spaces.Tuple([space_from(part) for part in description["spaces"]])
    if kind == "Box":
        dtype, shape = np.dtype(description["dtype"]), tuple(description["shape"])
        low, high = _bounds(description["low"], shape, dtype), _bounds(description["high"], shape, dtype)
        return spaces.Box(low, high, shape, dtype.type)
    if kind == "Discrete":
        dtype = np.dtype(description["dtype"])
        return spaces.Discrete(description["n"], start=description["start"], dtype=dtype.type)
    if kind == "MultiDiscrete":
        dtype = np.dtype(description["dtype"])
        nvec, start = np.array(description["nvec"], dtype), np.array(description["start"], dtype)
        return spaces.MultiDiscrete(nvec, dtype=dtype.type, start=start)
    if kind == "MultiBinary":
        return spaces.MultiBinary(description["n"])
    raise SettingsError(
        f"the description of a space has the type {kind!r}, "
        "expected Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple"
    )


def _plain(bounds: Array) -> Any:
    """Return one number if all are equal, else nested lists."""
    if bounds.size and (bounds == bounds.flat[0]).all():
        return _number(bounds.flat[0].item())
    return [_plain_row(row) for row in bounds]


def _plain_row(row: Any) -> Any:
    return _number(row.item()) if np.ndim(row) == 0 else [_plain_row(part) for part in row]


def _number(value: Any) -> Any:
    return str(value) if value in (float("inf"), float("-inf")) else value


def _bounds(plain: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    # With a string among the numbers, numpy would convert all of them to text and cut their digits.
    return np.broadcast_to(np.array(_numbers(plain), dtype), shape).copy()


def _numbers(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_numbers(part) for part in plain]
    return float(plain) if isinstance(plain, str) else plain
