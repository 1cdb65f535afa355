"""The restart limiter counts within a window and pauses longer each time."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from envfleet import Restarts
from envfleet.fleet import restart_limiter
from envfleet.fleet.restart_limiter import RestartLimiter


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that the test sets."""
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(restart_limiter, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


@pytest.mark.usefixtures("clock")
def test_pauses_double_up_to_five_seconds_and_the_first_restart_has_none() -> None:
    limiter = RestartLimiter(Restarts(limit=100, backoff=1.0))
    assert [limiter.count() for _ in range(6)] == [0.0, 1.0, 2.0, 4.0, 5.0, 5.0]


def test_a_restart_counts_only_within_its_window(clock: SimpleNamespace) -> None:
    limiter = RestartLimiter(Restarts(limit=2, within=10.0))
    limiter.count()
    clock.now += 6.0
    assert not limiter.exhausted
    limiter.count()
    assert limiter.exhausted and limiter.recent == 2
    clock.now += 6.0
    assert not limiter.exhausted and limiter.recent == 1
