"""Actions that do not fit are refused in the caller, before any environment steps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import envfleet
from tests.fleet.simulators import Counter, Nested

GOOD: dict[str, Any] = {
    "move": np.zeros(2, np.int64),
    "push": np.zeros((2, 2), np.float32),
    "flags": np.zeros((2, 2), np.int8),
}


class Hears(Counter):
    """Keeps the actions of a space of its own."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        super().__init__()
        self.action_space = space  # type: ignore[assignment]
        self.heard: list[Any] = []

    def step(self, action: Any) -> Any:
        self.heard.append(action)
        return super().step(0)


@pytest.fixture
def nested() -> Iterator[envfleet.Fleet]:
    with envfleet.make(Nested, 2, backend="sequential", seed=1) as fleet:
        fleet.reset()
        yield fleet


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"push": None}, "actions have no entry 'push', expected one for Box"),
        ({"move": np.zeros(2)}, "actions for 'move' are of type float64, expected int64 for Discrete(3)"),
        ({"push": np.zeros(2, np.float32)}, "actions for 'push' have shape (2,), expected (2, 2): one Box"),
        ({"flags": [[0], [0, 1]]}, "actions cannot be made an array"),
    ],
)
def test_a_part_of_a_nested_action_that_does_not_fit(
    nested: envfleet.Fleet, change: dict[str, Any], message: str
) -> None:
    actions = {name: value for name, value in {**GOOD, **change}.items() if value is not None}
    with pytest.raises(envfleet.ActionError, match=re.escape(message)):
        nested.step(actions)
    nested.step(GOOD)  # nothing has happened


@pytest.mark.parametrize("kind", [np.int64, np.bool_])
def test_whole_numbers_of_another_type_are_taken(kind: Any) -> None:
    with envfleet.make(lambda: Hears(spaces.Box(0, 9, (1,), np.uint8)), 2, backend="sequential") as fleet:
        fleet.reset()
        fleet.step(np.ones((2, 1), kind))
        assert [(heard.dtype, heard.tolist()) for (heard,) in fleet.get_attr("heard")] == [(np.uint8, [1])] * 2


def test_actions_that_are_no_arrays() -> None:
    with envfleet.make(lambda: Hears(spaces.Text(5)), 2, backend="sequential") as fleet:
        fleet.reset()
        fleet.step(("yes", "no"))
        assert fleet.get_attr("heard") == (["yes"], ["no"])
        with pytest.raises(envfleet.ActionError, match="there are 3 actions, expected one per environment: 2"):
            fleet.step(("a", "b", "c"))
