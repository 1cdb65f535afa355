"""Rollouts on other machines, whose clocks differ from the caller's: the caller alone knows when the time is up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from envfleet import clock
from envfleet.errors import OutOfTimeError
from envfleet.fleet.fleet import Fleet
from envfleet.rollout.order import Order, ReplayedRollouts
from tests.rollout.collecting import collecting
from tests.rollout.envs import Counter
from tests.rollout.streaming import SEED, Holdable, held, streaming

HOUR = 3600.0


class ClockOfANode:
    """A clock that is a year ahead."""

    @staticmethod
    def monotonic() -> float:
        return time.monotonic() + 365 * 24 * HOUR


@pytest.fixture
def _elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let fleets say that their workers are on another machine, where another clock is checked."""
    monkeypatch.setattr(Fleet, "hosts", [("10.0.0.2", None)])
    monkeypatch.setattr(clock, "time", ClockOfANode)


@pytest.fixture
def _held() -> Iterator[None]:
    """Hold the steps of the first environment until the end of the test."""
    held[SEED].clear()
    yield
    held[SEED].set()
    held.clear()


def test_workers_of_this_machine_check_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "time", ClockOfANode)
    with collecting(Counter, acting="worker", backend="sequential") as rig:
        rig.collector.begin(0, time.monotonic() + HOUR)
        with pytest.raises(OutOfTimeError):
            rig.collector.finish()


@pytest.mark.usefixtures("_elsewhere")
@pytest.mark.parametrize("backend", ["sequential", "threads"])
def test_the_clock_of_a_node_ends_no_rollout(backend: str) -> None:
    with collecting(Counter, acting="worker", backend=backend) as rig:
        rig.collector.begin(0, time.monotonic() + HOUR)
        assert rig.collector.finish().valid.all()
    with streaming(Counter, backend=backend) as stream:
        stream.workers.publish(stream.weights(0), 0)
        for _ in range(4):
            stream.workers.release(stream.workers.next(time.monotonic() + HOUR))


@pytest.mark.usefixtures("_elsewhere", "_held")
def test_the_caller_gives_up_rollouts_on_nodes() -> None:
    with collecting(Holdable, acting="worker", backend="threads", workers=2) as rig:
        rig.collector.begin(0, time.monotonic())
        with pytest.raises(OutOfTimeError):
            rig.collector.finish()
        held[SEED].set()


@pytest.mark.usefixtures("_elsewhere", "_held")
def test_the_caller_gives_up_a_replayed_rollout(tmp_path: Path) -> None:
    with streaming(Holdable, backend="threads") as stream:
        order = Order(tmp_path, [[0], [1]], [(0, 0, 0)], 1)
        replayed = ReplayedRollouts(stream.requests, order)
        replayed.publish(stream.weights(0), 0)
        with pytest.raises(OutOfTimeError):
            replayed.next(time.monotonic())
        held[SEED].set()


@pytest.mark.usefixtures("_elsewhere")
def test_no_rollout_is_taken_after_the_time() -> None:
    """Workers on nodes never stop by themselves, so one could always be ready."""
    with streaming(Counter, backend="threads") as stream:
        stream.workers.publish(stream.weights(0), 0)
        stream.workers.release(stream.workers.next(time.monotonic() + HOUR))
        with pytest.raises(OutOfTimeError):
            stream.workers.next(time.monotonic() - HOUR)
