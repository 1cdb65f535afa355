"""Fraction of a rate that applies to each update: constant, linear, cosine, each after an optional warm-up."""

from __future__ import annotations

import math
from typing import Any

import pytest

from envfleet.algorithms.rates import share_of_rate

UPDATES = 4


def shares(schedule: Any, warmup: float = 0.0, updates: int = UPDATES) -> list[float]:
    """Fractions for all updates of a run, in order."""
    return [share_of_rate(schedule, u / updates, (u + 1) / updates, warmup=warmup) for u in range(updates)]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [1.0, 1.0, 1.0, 1.0]),
        ("linear", [1.0, 0.75, 0.5, 0.25]),
        ("cosine", [1.0, 0.5 + math.sqrt(2) / 4, 0.5, 0.5 - math.sqrt(2) / 4]),
    ],
)
def test_the_first_update_has_the_whole_rate_and_the_last_one_some(schedule: str, expected: list[float]) -> None:
    assert shares(schedule) == pytest.approx(expected)
    assert shares(schedule)[0] == 1.0  # exactly


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [0.5, 1.0, 1.0, 1.0, 1.0, 1.0]),
        ("linear", [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]),
        ("cosine", [0.5, 1.0, 1.0, 0.5 + math.sqrt(2) / 4, 0.5, 0.5 - math.sqrt(2) / 4]),
    ],
)
def test_a_warm_up_rises_to_the_whole_rate_and_the_schedule_has_the_rest(schedule: str, expected: list[float]) -> None:
    assert shares(schedule, warmup=1 / 3, updates=6) == pytest.approx(expected)


def test_an_update_that_completes_the_warm_up_has_the_whole_rate() -> None:
    assert share_of_rate("linear", 0.08, 0.12, warmup=0.1) == 1.0
    assert share_of_rate("linear", 0.08, 0.09, warmup=0.1) == pytest.approx(0.9)


def test_beyond_the_budget_nothing_is_below_zero() -> None:
    assert [share_of_rate(schedule, 1.2) for schedule in ("constant", "linear", "cosine")] == [1.0, 0.0, 0.0]
