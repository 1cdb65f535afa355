"""A check keeps to its time limit, and its report names the parts that were skipped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from envfleet.conformance import CheckReport
from envfleet.errors import SettingsError
from tests.conformance.worlds import Endless, Walk, check, returning

SECONDS_PER_STEP = 1 / 16  # a power of two, so sums are exact


class Clock:
    """A clock that advances only while an environment steps."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def slow(kind: type[Walk], clock: Clock) -> type[Walk]:
    class Slow(kind):  # type: ignore[misc, valid-type]
        def step(self, action: Any) -> Any:
            clock.now += SECONDS_PER_STEP
            return super().step(action)

    return Slow


def examined(kind: type[Walk], seconds: float) -> tuple[CheckReport, float]:
    """Return the report and the seconds that it took."""
    clock = Clock()
    report = check(slow(kind, clock), steps=40, seconds=seconds, clock=clock)
    return report, clock.now - 1000.0


def test_with_time_enough_nothing_is_left_out() -> None:
    report, _ = examined(Walk, 1000)
    assert report.skipped == ()
    assert "not examined" not in str(report)
    assert report.steps == 40


def test_without_time_one_step_is_played_and_all_else_is_named() -> None:
    report, _ = examined(Walk, 0)
    assert report.ok
    assert report.steps == 1
    assert report.skipped == (
        "all but 1 of the 40 steps of random play",
        "a step after an episode's end",
        "the same seed again",
        "other seeds",
        "a second instance beside the first",
        "whether episodes end",
        "whether resume is exact",
    )


def test_a_slow_environment_plays_fewer_steps_of_everything() -> None:
    report, taken = examined(Walk, 8)
    assert report.problems == ()
    assert report.steps == 16  # an eighth of the time
    assert report.skipped == ("all but 16 of the 40 steps of random play",)
    assert taken < 8


def test_what_takes_too_long_is_cut_short() -> None:
    report, taken = examined(Walk, 0.1)
    assert taken == 2 * SECONDS_PER_STEP
    assert report.skipped[:4] == (
        "all but 1 of the 40 steps of random play",
        "the same seed again (cut short)",
        "other seeds",
        "a second instance beside the first",
    )


def test_episodes_that_may_end_later_are_no_problem() -> None:
    report, _ = examined(Endless, 4)
    assert report.problems == ()
    assert "whether episodes end (cut short)" in report.skipped


def test_a_problem_counts_and_what_was_left_out_does_not() -> None:
    report = check(returning(reward=lambda env: np.nan), seconds=0)
    assert report.skipped
    assert not report.ok
    assert str(report).startswith("returning.<locals>.Changed: not ok, 1 error")


def test_the_report_says_how_to_give_more_time() -> None:
    report, _ = examined(Walk, 0)
    text = str(report)
    assert text.startswith("slow.<locals>.Slow: ok as far as it was examined, nothing to fix")
    assert "not examined, for lack of time (0 s):\n  - all but 1 of the 40 steps" in text
    assert text.endswith("more time: --seconds 20, or check(env, seconds=20)")
    assert str(examined(Walk, 8)[0]).endswith("more time: --seconds 32, or check(env, seconds=32)")


@pytest.mark.parametrize("seconds", [-1.0, float("nan")])
def test_impossible_seconds_are_refused(seconds: float) -> None:
    with pytest.raises(SettingsError, match=f"seconds is {seconds}, expected 0 or more"):
        check(Walk, seconds=seconds)


def test_any_time_will_do() -> None:
    assert check(Walk, seconds=float("inf")).skipped == ()
