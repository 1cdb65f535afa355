"""`pin_cores`: every worker stays on its own core."""

from __future__ import annotations

import os

import pytest

import envfleet
from envfleet.errors import SettingsError

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="a matter of Linux")


def test_every_worker_is_bound_to_one_core_in_turn() -> None:
    cores, before = sorted(os.sched_getaffinity(0)), os.sched_getaffinity(0)
    with envfleet.make("CartPole-v1", 6, backend="processes", workers=3, pin_cores=True, quiet=True) as fleet:
        fleet.reset(seed=1)
        fleet.step(fleet.action_space.sample())
        pinned = [os.sched_getaffinity(worker.pid) for worker in fleet.statistics().workers]
    assert pinned == [{cores[worker % len(cores)]} for worker in range(3)]
    assert os.sched_getaffinity(0) == before


def test_the_caller_is_never_bound() -> None:
    before = os.sched_getaffinity(0)
    with envfleet.make("CartPole-v1", 2, backend="sequential", pin_cores=True, quiet=True) as fleet:
        fleet.reset(seed=1)
        assert os.sched_getaffinity(0) == before
    with pytest.raises(SettingsError, match="caller's own process"):
        envfleet.make("CartPole-v1", 2, backend="processes", trusted=True, pin_cores=True, quiet=True)
