"""`pin_cores`: every worker stays on its own core."""

from __future__ import annotations

import os

import pytest

from envfleet.errors import SettingsError
from envfleet.fleet.fleet import Fleet
from envfleet.fleet.make import Hosting, build_fleet
from envfleet.fleet.makers import makers_of
from envfleet.fleet.spec import GroupSettings

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="a matter of Linux")


def made(n_envs: int, hosting: Hosting) -> Fleet:
    return build_fleet(makers_of("CartPole-v1", n_envs), GroupSettings(seed=1), hosting, quiet=True)


def test_every_worker_is_bound_to_one_core_in_turn() -> None:
    cores, before = sorted(os.sched_getaffinity(0)), os.sched_getaffinity(0)
    with made(6, Hosting("processes", workers=3, pin_cores=True)) as fleet:
        fleet.reset()
        fleet.step(fleet.action_space.sample())
        pinned = [os.sched_getaffinity(worker.pid) for worker in fleet.statistics().workers]
    assert pinned == [{cores[worker % len(cores)]} for worker in range(3)]
    assert os.sched_getaffinity(0) == before


def test_the_caller_is_never_bound() -> None:
    before = os.sched_getaffinity(0)
    with made(2, Hosting("sequential", pin_cores=True)) as fleet:
        fleet.reset()
        assert os.sched_getaffinity(0) == before
    with pytest.raises(SettingsError, match="caller's own process"):
        made(2, Hosting("processes", trusted=True, pin_cores=True))
