"""Hosts without shared memory that disappear: their workers continue on another host."""

from __future__ import annotations

import gc
import logging
import math
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import envfleet
from envfleet.fleet.backends.remote import RemoteBackend
from tests.fleet.loop_back import InlineLink, Placement, ThreadLink, use_loop_back
from tests.fleet.simulators import Counter
from tests.rollout.collecting import STEPS, Rig, collecting
from tests.rollout.envs import Counter as DiaryCounter

ACTIONS = np.arange(8)


@pytest.fixture(autouse=True)
def _hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    use_loop_back("loop-back-hosts", monkeypatch)


def make(**settings: Any) -> envfleet.Fleet:
    return envfleet.make(Counter, 8, group_size=2, seed=10, backend="threads", workers=4, **settings)


def unplug(fleet: envfleet.Fleet, host: int) -> None:
    link = fleet._supervisor.backend._placement.links[host]  # type: ignore[attr-defined]
    assert isinstance(link, ThreadLink)
    link.unplug()


def test_all_workers_of_a_lost_host_continue_elsewhere(caplog: pytest.LogCaptureFixture) -> None:
    with make() as fleet:
        fleet.reset()
        fleet.step(ACTIONS)
        with caplog.at_level(logging.WARNING, "envfleet"):
            unplug(fleet, 0)  # workers 0 and 2: environments 0, 1, 4 and 5
            observations, _, _, truncated, infos = fleet.step(ACTIONS)
        mine = [True, True, False, False] * 2
        assert truncated.tolist() == infos["restarted"].tolist() == mine
        assert observations[:, 0].tolist() == [1, 1, 2, 2] * 2  # the last observation before the lost step
        assert caplog.text.count("its host was unplugged") == 2
        assert fleet.step(ACTIONS)[0][:, 0].tolist() == [0, 0, 3, 3] * 2
        unplug(fleet, 0)  # the new one
        assert fleet.reset(seed=10)[0][:, 0].tolist() == [0] * 8
        assert fleet.statistics().restarts == 4


def test_a_host_that_is_lost_again_and_again_ends_in_an_error() -> None:
    with make(restarts=envfleet.Restarts(limit=1, backoff=0.01)) as fleet:
        fleet.reset()
        unplug(fleet, 1)
        fleet.step(ACTIONS)
        unplug(fleet, 1)
        with pytest.raises(envfleet.WorkerError, match=r"died 2 times within 300 s.*its host was unplugged"):
            fleet.step(ACTIONS)


def test_a_host_ends_while_it_shows_the_progress_of_its_workers() -> None:
    asked, go = threading.Event(), threading.Event()

    def slow_memory(worker: int) -> int:
        asked.set()
        go.wait(10.0)
        return 1

    with make() as fleet:
        fleet.reset()
        link = fleet._supervisor.backend._placement.links[0]  # type: ignore[attr-defined]
        host = link.host
        host.backend.memory, host._weighed = slow_memory, -math.inf
        found: list[Any] = []
        threads = [threading.Thread(target=lambda: found.append(host.signs()))]
        threads[0].start()
        assert asked.wait(10.0)
        threads.append(threading.Thread(target=link.unplug))
        threads[1].start()
        threads[1].join(0.3)  # it has to wait
        go.set()
        for thread in threads:
            thread.join()
        assert len(found[0]) in (0, 2)  # 0 if the host's own thread asked first, and the end came second
        assert host.signs() == []
        assert fleet.step(ACTIONS)[4]["restarted"].any()


def test_a_lost_host_is_not_kept() -> None:
    backend = RemoteBackend("threads", Placement(InlineLink, 1, killable=False))
    link = InlineLink(backend)
    backend.lose(link, "its host was unplugged")
    kept = weakref.ref(link)
    del link
    gc.collect()
    assert kept() is None
    backend.close(0.0)


@pytest.mark.slow
def test_a_rollout_of_a_lost_host_is_collected_again() -> None:
    """The rows of the other host are untouched; the lost ones lose one row, and old reports change nothing."""

    def rows(rig: Rig, number: int) -> Any:
        rollout = rig.collect(number)
        return rollout.valid.copy(), rollout.observations[""].copy()

    settings: dict[str, Any] = {"acting": "worker", "backend": "threads", "workers": 2, "memory": "gru"}
    with collecting(DiaryCounter, **settings) as rig:
        rows(rig, 0)
        _, untouched = rows(rig, 1)
        unplug(rig.fleet, 1)
        valid, observations = rows(rig, 2)
        assert valid[:, :4].all()
        assert not valid[0, 4:].any() and valid[1:, 4:].all()
        assert np.array_equal(observations[0, :4], untouched[STEPS, :4])
        assert rows(rig, 3)[0].all()
