"""Restarts are limited within a window, with pauses that grow, and those of environments are logged."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from envfleet import EnvError, Restarts
from envfleet.errors import EnvContext
from envfleet.fleet import restart_limiter
from envfleet.fleet.failures import RestartBudget
from envfleet.fleet.restart_limiter import RestartLimiter
from envfleet.fleet.spec import GroupSettings, OnError


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


def test_the_first_restart_of_an_environment_is_logged_in_full_and_later_ones_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    budget = RestartBudget(GroupSettings(1, on_error=OnError.RESTART, restarts=Restarts(100, backoff=0.0)))
    for number in range(9):
        context = EnvContext(3, "step", seed=13, step=number, action=0)
        budget.spend(EnvError(f"ValueError: broken {number}", context, original="Traceback: line 7 of engine.py"))
    first, *later = caplog.messages
    assert "broken 0" in first and "environment 3" in first and "line 7 of engine.py" in first
    assert later == [
        f"environment 3: restarted {count} times so far, now because of: ValueError: broken {count - 1}"
        for count in (2, 4, 8)
    ]
