"""Hosts without shared memory that disappear: their workers continue on another host."""

from __future__ import annotations

import functools
import gc
import logging
import math
import threading
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import envfleet
from envfleet.fleet import make as make_module
from envfleet.fleet.backends.remote import RemoteBackend
from envfleet.fleet.channel import ChannelClosed
from envfleet.fleet.control import WorkerWord
from envfleet.fleet.numerics import measure_torch
from envfleet.fleet.spec import WorkerSpec
from tests.fleet import loop_back
from tests.fleet.loop_back import InlineLink, Placement, ThreadLink, use_loop_back
from tests.fleet.simulators import Counter
from tests.rollout.collecting import STEPS, Rig, collecting
from tests.rollout.envs import Counter as DiaryCounter
from tests.waiting import wait_until

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


def test_the_workers_of_a_lost_host_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each continues on another one of the remaining hosts."""
    monkeypatch.setattr(loop_back, "HOSTS", 3)
    with envfleet.make(Counter, 12, group_size=2, seed=10, backend="threads", workers=6) as fleet:
        fleet.reset()
        backend: Any = fleet._supervisor.backend
        lost, *others = backend._placement.links

        def share(link: Any, workers: Any) -> dict[int, Any]:
            assert link is lost
            return dict(zip(workers, others, strict=True))

        monkeypatch.setattr(backend._placement, "replacements", share)
        lost.unplug()  # workers 0 and 3
        mine = [True, True, False, False, False, False] * 2
        assert fleet.step(np.arange(12))[4]["restarted"].tolist() == mine
        assert [backend.workers_of(link) for link in others] == [[0, 1, 4], [2, 3, 5]]
        assert fleet.step(np.arange(12))[0][:, 0].tolist() == [0, 0, 2, 2, 2, 2] * 2
        assert fleet.statistics().restarts == 2


def test_workers_that_act_report_the_arithmetic_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a cluster. Workers that only step report it if the server that forks them has loaded torch for others."""
    reported: list[str] = []
    monkeypatch.setattr(Placement, "approve", lambda self, link, hello: reported.append(hello.torch))
    with make():
        assert reported == [""] * 4  # nobody asked
    reported.clear()
    asked = functools.partial(WorkerSpec, fingerprint=True)
    monkeypatch.setattr(make_module, "WorkerSpec", lambda *given, fingerprint: asked(*given))
    with make() as fleet:
        placement = fleet._supervisor.backend._placement  # type: ignore[attr-defined]
        placement.offer(1)  # prepared workers report it too
        assert len(reported) == 5 and set(reported) <= {"", measure_torch()}
    reported.clear()
    with collecting(DiaryCounter, backend="threads", workers=2, group_size=2, acting="worker"):
        assert reported == [measure_torch()] * 2 and reported[0]


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


def test_a_worker_that_is_prepared_on_the_host_that_replaces_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two readers of one channel would each take messages of the other."""
    with make() as fleet:
        fleet.reset()
        backend: Any = fleet._supervisor.backend
        lost, other = backend._placement.links
        monkeypatch.setattr(backend._placement, "replacements", lambda link, workers: dict.fromkeys(workers, other))
        start = other.call("start", backend._specs[0])  # as `prepare` does
        lost.unplug()
        assert fleet.step(ACTIONS)[4]["restarted"].tolist() == [True, True, False, False] * 2
        with pytest.raises(ChannelClosed, match="started there again"):
            other.call("hello", 0, start, 0.0)
        with pytest.raises(ChannelClosed, match="started there again"):
            backend.prepare([2], other, 60.0)  # it is there already
        assert fleet.step(ACTIONS)[0][:, 0].tolist() == [0, 0, 2, 2] * 2
        assert fleet.statistics().restarts == 2


def test_a_worker_that_does_not_send_its_reply_is_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = True

    def receive(seconds: float | None = None) -> bytes:
        nonlocal silent
        silent = False
        assert seconds is not None, "the host would wait forever"
        raise TimeoutError

    with make() as fleet:
        fleet.reset()
        host = fleet._supervisor.backend._placement.links[0].host  # type: ignore[attr-defined]
        channel = host.backend.channel
        held = SimpleNamespace(receive_packed=receive, send_packed=channel(0).send_packed)
        monkeypatch.setattr(host.backend, "channel", lambda worker: held if silent and worker == 0 else channel(worker))
        assert fleet.reset(seed=10)[0][:, 0].tolist() == [0] * 8
        assert not silent and fleet.statistics().restarts == 1  # not all workers of the host


def test_a_report_with_a_worker_that_was_restarted_since(monkeypatch: pytest.MonkeyPatch) -> None:
    """The results of the others count: nobody would send them again."""
    held: list[tuple[Any, Any]] = []
    with make() as fleet:
        fleet.reset()
        for _ in range(4):  # from then on, infos have columns
            fleet.step(ACTIONS)
        backend: Any = fleet._supervisor.backend
        deliver = backend.deliver
        monkeypatch.setattr(backend, "deliver", lambda *report: held.append(report))
        fleet.step_async(ACTIONS[::-1])
        assert wait_until(lambda: len(held) == 2)
        arrays = backend._arrays
        control, before = arrays.control, arrays.reward.copy()
        backend._epochs[0] += 1
        for link, report in held:
            deliver(link, report)
        expected = ACTIONS[::-1].astype(float)
        expected[:2] = before[:2]
        assert arrays.reward.tolist() == expected.tolist()
        lines = [control.worker(worker, WorkerWord.POSTED) for worker in range(4)]
        done = [control.words[line] == control.words[line + WorkerWord.FINISHED] for line in lines]
        assert done == [False, True, True, True]


def test_hosts_close_at_the_same_time() -> None:
    said: list[str] = []

    class Recorded:
        def __init__(self, name: str) -> None:
            self._name = name

        def close(self, seconds: float) -> Any:
            said.append(f"begin {self._name}")
            return lambda: said.append(f"end {self._name}")

    backend: Any = RemoteBackend("threads", Placement(InlineLink, 1, killable=False))
    backend._links = {0: Recorded("a"), 1: Recorded("b")}
    backend.close(0.0)
    assert said == ["begin a", "begin b", "end a", "end b"]


def test_threads_of_the_placement_may_use_the_backend_at_once() -> None:
    class Eager(Placement):
        def bind(self, backend: RemoteBackend) -> None:
            super().bind(backend)
            link = InlineLink(backend)
            assert backend.workers_of(link) == []
            backend.lose(link, "its host was unplugged")

    RemoteBackend("threads", Eager(InlineLink, 1, killable=False)).close(0.0)


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
