"""Targets on the benchmark pages, and the pieces of a step's time."""

from __future__ import annotations

import pytest

from benchmarks.step_time import PIECES, divide
from benchmarks.targets import check_targets
from benchmarks.wanted import at_least, at_most, target


@pytest.mark.parametrize(
    ("sign", "measured", "reached"),
    [(">=", 0.9, True), (">", 0.9, False), ("<=", 0.9, True), ("<", 0.9, False), (">=", None, False)],
)
def test_a_target_is_reached_or_not(sign, measured, reached):
    assert target("speed", sign, 0.9, measured)["reached"] is reached


def test_a_miss_within_the_spread_of_the_rounds_says_so():
    spread = {"median": 0.88, "lower": 0.85, "upper": 0.91}
    assert at_least("share", spread, 0.9)["why"] == "the middle half of the rounds spreads from 0.85 to 0.91"
    assert at_most("share", spread, 0.86)["why"] == "the middle half of the rounds spreads from 0.85 to 0.91"
    assert at_least("share", spread, 0.95)["why"] == ""
    assert at_least("share", spread, 0.9, "a reason")["why"] == "a reason"


def test_the_pieces_of_a_step_add_up():
    fleet = {"seconds": 1.0, "steps": 128_000, "busy_microseconds": 350.0, "caller_microseconds": 40.0}
    found = divide(64, limit=256_000, lockstep=213_333, fleet=fleet)
    assert found["step"] == 500
    assert found["environments"] == pytest.approx(300, abs=0.01)
    assert found["workers"] == 100  # busy for 350 of which its environments take 64 / 256,000 s
    assert found["hand_over"] == pytest.approx(60, abs=0.01)
    assert sum(found[piece] for piece in PIECES) == pytest.approx(found["step"])


def test_the_overhead_may_not_rise_with_the_number_of_environments():
    def growth(*overheads):
        points = [
            {"n_envs": 2**n, "processes": min(2, 2**n), "overhead_microseconds": overhead}
            for n, overhead in enumerate(overheads)
        ]
        (found,) = check_targets({"growth": points})
        return found

    assert growth(14.0, 7.0, 2.0, 2.4)["reached"]  # less than half a microsecond more
    risen = growth(14.0, 2.0, 3.0)
    assert (risen["measured"], risen["reached"]) == (1.5, False)
    assert "caches" in risen["why"]
    assert "second worker" in growth(14.0, 20.0)["why"]
    (absent,) = check_targets({"growth": [{"n_envs": 1, "absent": "no memory"}]})
    assert absent["measured"] is None
