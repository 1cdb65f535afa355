"""Which weights collect which rollout, and how many messages that takes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from envfleet.fleet.channel import CallerChannel
from envfleet.rollout.schedules import SCHEDULES, Schedule
from envfleet.training import exactness
from tests.training.running import SMALL, run

Array = np.ndarray[Any, Any]


class Noting:
    """Collector that collects nothing and records the weights of each rollout."""

    arrays: dict[str, Array] = {}

    def __init__(self) -> None:
        self.published: float | None = None
        self.weights_of: list[tuple[int, float | None]] = []

    def publish(self, weights: Array) -> None:
        self.published = float(weights[0])

    def begin(self, number: int, until: float = math.inf) -> None:
        self.weights_of.append((number, self.published))

    def finish(self) -> Any:
        return self.weights_of[-1]

    def collected(self, number: int) -> Any:
        return number, None

    def close(self) -> None:
        """Nothing to close."""


@pytest.mark.parametrize(("schedule", "expected"), [("sync", [0, 1, 2, 3, 4]), ("overlap", [0, 0, 1, 2, 3])])
def test_the_lag_is_none_or_exactly_one(schedule: str, expected: list[int]) -> None:
    weights = np.zeros(1)
    collector = Noting()
    rollouts = Schedule(collector, lambda: weights, lag=SCHEDULES[schedule])
    handed_out = []
    for _ in range(5):
        handed_out.append(rollouts.next())
        weights += 1  # one update
    assert handed_out == list(enumerate(expected))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_settling_in_between_changes_no_rollout(schedule: str) -> None:
    """A checkpoint waits for the rollout in progress and does not start another."""
    weights = np.zeros(1)
    collector = Noting()
    rollouts = Schedule(collector, lambda: weights, lag=SCHEDULES[schedule])
    for _ in range(4):
        rollouts.next()
        weights += 1
        rollouts.settle()
        assert rollouts.idle
    lag = SCHEDULES[schedule]
    assert collector.weights_of == [(number, max(0, number - lag)) for number in range(4 + lag)]


def test_a_rollout_takes_as_many_messages_whatever_its_length(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, start_method: str | None
) -> None:
    """If the workers act, no step needs a message or a pickle."""
    sent: list[int] = []
    send = CallerChannel.send_packed

    def counted(channel: CallerChannel, data: bytes) -> None:
        sent.append(len(data))
        send(channel, data)

    monkeypatch.setattr(CallerChannel, "send_packed", counted)
    monkeypatch.setattr(exactness, "why_inexact", lambda *args, **kwargs: None)  # it sends states, once per process
    counts = []
    for steps in (8, 64):
        sent.clear()
        changes = {"rollout_steps": steps, "steps": 3 * SMALL["n_envs"] * steps, "minibatch_size": 48}
        where = {"backend": "processes", "workers": 2, "start_method": start_method}
        run(tmp_path / str(steps), acting="worker", **where, **changes)
        counts.append(len(sent))
    assert counts[0] == counts[1] > 0
