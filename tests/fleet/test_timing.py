"""The one way to measure speed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from envfleet.fleet import timing
from envfleet.fleet.timing import Timing, timed


class Clock:
    """Time passes only in steps. `late` seconds of the queue come just before its second reading."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, late: float = 0.0, miscounted: float = 0.0) -> None:
        self.seconds = self.cpu = self.queue = 0.0
        self.late, self.miscounted, self.readings = late, miscounted, 0
        clocks = SimpleNamespace(perf_counter=lambda: self.seconds, process_time=lambda: self.cpu)
        monkeypatch.setattr(timing, "time", clocks)
        monkeypatch.setattr(timing, "queued_seconds", self.queued)

    def step(self) -> int:
        self.seconds += 0.06
        self.cpu += 0.002
        self.queue += 0.058
        return 4

    def queued(self) -> float:
        self.readings += 1
        if self.readings == 2:
            self.seconds += self.late
            self.queue += self.late + self.miscounted
        return self.queue


def test_it_ends_after_the_time_or_the_steps_but_not_before_one(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    assert timed(clock.step, 0.1).steps == 8
    assert timed(clock.step, 10.0, most_steps=12).steps == 12
    assert timed(clock.step, -1.0).steps == 4
    empty = iter([0, 0, 1])
    assert timed(lambda: next(empty), 0.0).steps == 1


def test_time_is_divided_by_where_it_went(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = timed(Clock(monkeypatch).step, 0.1)
    assert (whole.seconds, whole.cpu_seconds) == (pytest.approx(0.12), pytest.approx(0.004))
    assert whole.undisturbed_seconds == pytest.approx(0.004)
    assert whole.steps_per_second == pytest.approx(8 / 0.12)
    assert whole + whole == Timing(16, 2 * whole.seconds, 2 * whole.cpu_seconds, 2 * whole.queued_seconds)


@pytest.mark.parametrize(
    ("late", "miscounted"),
    [
        (0.05, 0.0),  # others take the core between two readings
        (0.0, 0.05),  # the system counts more seconds in the queue than have passed
    ],
)
def test_no_step_takes_less_than_its_computing(late: float, miscounted: float, monkeypatch: pytest.MonkeyPatch) -> None:
    found = timed(Clock(monkeypatch, late, miscounted).step, 0.0)
    assert found.seconds == pytest.approx(0.06 + late)
    assert found.undisturbed_seconds == pytest.approx(0.002)


def test_several_threads_compute_no_longer_than_the_clock() -> None:
    assert Timing(1, seconds=0.1, cpu_seconds=0.4).undisturbed_seconds == 0.1
