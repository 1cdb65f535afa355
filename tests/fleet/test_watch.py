"""Time limits count the time in which somebody watches: a program that was stopped as a whole has no hung worker."""

from __future__ import annotations

import pytest

from envfleet.fleet import watch
from envfleet.fleet.control import Phase, WorkerWord
from envfleet.fleet.spec import Timeouts

LOOK = 0.25


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(watch, "time", clock)
    return clock


@pytest.fixture
def progress(clock: Clock) -> watch.ProgressWatch:
    """A watch over one worker that has a step to do and makes no progress."""
    words = memoryview(bytearray(8 * 64)).cast("q")
    words[WorkerWord.POSTED], words[WorkerWord.PHASE] = 1, Phase.STEP
    return watch.ProgressWatch(words, [0], Timeouts(step=60.0))


def looks_until_hung(progress: watch.ProgressWatch, clock: Clock) -> int:
    for look in range(1000):
        if list(progress.stuck()):
            return look
        clock.now += LOOK
    raise AssertionError("the hang is never noticed")


def test_a_worker_without_progress_is_hung_after_its_limit(progress: watch.ProgressWatch, clock: Clock) -> None:
    assert looks_until_hung(progress, clock) == 60 / LOOK + 1


def test_progress_that_is_shown_late_extends_the_limit(clock: Clock) -> None:
    words = memoryview(bytearray(8 * 64)).cast("q")
    words[WorkerWord.POSTED] = 1
    late = watch.ProgressWatch(words, [0], Timeouts(step=0.5), sign_seconds=2.0)
    assert looks_until_hung(late, clock) == 2.5 / LOOK + 1
    clock.now += 2.0
    assert not list(late.stuck())  # it is watched again from now on
    clock.now += 2.0
    words[WorkerWord.TICK] = 1
    assert not list(late.stuck())


def test_time_in_which_nobody_watched_does_not_count(progress: watch.ProgressWatch, clock: Clock) -> None:
    assert not list(progress.stuck())
    clock.now += 3600.0  # Ctrl-Z, and fg an hour later
    assert not list(progress.stuck())
    counted = watch.LONGEST_GAP / LOOK
    assert looks_until_hung(progress, clock) == 60 / LOOK - counted + 1
