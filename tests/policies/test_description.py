"""Spaces survive a round trip through JSON."""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from envfleet.errors import SettingsError
from envfleet.policies.description import describe_space, space_from

THIRD = np.float32(1) / np.float32(3)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-np.inf, np.inf, (3,), np.float32),
        spaces.Box(np.array([-np.inf, THIRD, 0.0]), np.array([1e-30, np.inf, 2.0]), dtype=np.float64),
        spaces.Box(np.array([[-1, THIRD]], np.float32), np.array([[np.inf, 0.5]], np.float32)),
        spaces.Box(-0.1, 0.1, (), np.float64),
        spaces.Box(0, 255, (4, 84, 84), np.uint8),
        spaces.Box(-(2**62) - 1, 2**62 + 1, (2,), np.int64),
        spaces.Discrete(5, start=-2),
        spaces.Discrete(3, dtype=np.int32),
        spaces.MultiDiscrete([2, 3], start=[1, -1]),
        spaces.MultiDiscrete([[2, 3], [4, 5]], dtype=np.int32),
        spaces.MultiBinary(4),
        spaces.MultiBinary([2, 3]),
        spaces.Tuple([spaces.Discrete(2), spaces.Dict({"a": spaces.MultiBinary(1)})]),
    ],
    ids=str,
)
def test_a_space_comes_back_equal(space: spaces.Space[Any]) -> None:
    text = json.dumps(describe_space(space), allow_nan=False)
    again = space_from(json.loads(text))
    assert again == space
    assert again.dtype == space.dtype and again.shape == space.shape


def test_bounds_keep_all_their_digits() -> None:
    low = np.array([THIRD, -np.inf, 1e-40], np.float32)
    again = space_from(json.loads(json.dumps(describe_space(spaces.Box(low, np.full(3, np.inf, np.float32))))))
    assert isinstance(again, spaces.Box)
    assert again.low.tobytes() == low.tobytes()


def test_the_order_of_keys_survives_sorting() -> None:
    space = spaces.Dict(OrderedDict([("b", spaces.Discrete(2)), ("a", spaces.Discrete(3))]))
    again = space_from(json.loads(json.dumps(describe_space(space), sort_keys=True)))
    assert isinstance(again, spaces.Dict)
    assert list(again.spaces) == ["b", "a"]


def test_other_spaces_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"Text.* cannot be described"):
        describe_space(spaces.Dict({"a": spaces.Text(3)}))


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ({"type": "Graph"}, "has the type 'Graph'"),
        ({}, "has the type None"),
        ({"type": "Discrete", "n": 3}, "is no Discrete"),
        ({"type": "Tuple", "spaces": [{"type": "MultiBinary", "n": 0}]}, "is no MultiBinary"),
    ],
)
def test_a_damaged_description_is_named(description: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        space_from(description)
