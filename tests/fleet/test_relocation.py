"""Workers that move to another host between two rollouts: the same bytes as without a move."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import envfleet
from envfleet.fleet.channel import ChannelClosed
from envfleet.fleet.fleet import Fleet
from envfleet.rollout.worker_rollouts import WorkerRollout
from tests.fleet.backends import same
from tests.fleet.loop_back import Placement, ThreadLink, use_loop_back
from tests.fleet.simulators import Counter, Holds
from tests.rollout.collecting import Rig, collecting, kept
from tests.rollout.envs import Counter as DiaryCounter
from tests.rollout.envs import MaskedCounter
from tests.rollout.streaming import streaming
from tests.waiting import gone, wait_until

ACTIONS = np.arange(8)
ROLLOUTS = 4


@pytest.fixture(autouse=True)
def _hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    use_loop_back("loop-back-hosts", monkeypatch)


def placement(fleet: Fleet) -> Placement:
    found = fleet._supervisor.backend._placement  # type: ignore[attr-defined]
    assert isinstance(found, Placement)
    return found


def pids(fleet: Fleet) -> list[int]:
    return [worker.pid for worker in fleet.statistics().workers]


def rollouts(env: Any, acting: str, memory: str, disturb: Any = None, **changes: Any) -> list[dict[str, Any]]:
    """Return some rollouts; `disturb(rig, number)` is called before each."""
    settings: dict[str, Any] = {"backend": "threads", "workers": 4, "group_size": 2, "buffers": 2, **changes}
    with collecting(env, acting=acting, memory=memory, **settings) as rig:
        found = []
        for number in range(ROLLOUTS):
            if disturb is not None:
                disturb(rig, number)
            found.append(kept(rig.collect(number)))
        return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "acting", "memory"),
    [
        ("CartPole-v1", "worker", "none"),
        ("CartPole-v1", "worker", "gru"),
        ("CartPole-v1", "central", "gru"),
        (MaskedCounter, "worker", "none"),
        (MaskedCounter, "central", "none"),
    ],
)
def test_a_move_changes_no_byte(env: Any, acting: str, memory: str) -> None:
    """Two workers move to a new host, then one of them moves on."""

    def move(rig: Rig, number: int) -> None:
        if number in (1, 3):
            before = pids(rig.fleet)
            placement(rig.fleet).offer(*((1, 2) if number == 1 else (2,)))
            moved.append(before)
        if number == 2:
            now = pids(rig.fleet)
            assert [a != b for a, b in zip(moved[0], now, strict=True)] == [False, True, True, False]
            assert wait_until(lambda: gone(moved[0][1:3]))
            assert rig.fleet.statistics().restarts == 0

    moved: list[list[int]] = []
    expected = rollouts(env, acting, memory)
    assert same(rollouts(env, acting, memory, move), expected)
    assert len(moved) == 2


def test_masks_survive_the_loss_of_the_new_host_at_the_move() -> None:
    def move(rig: Rig, number: int) -> None:
        if number == 1:
            link = placement(rig.fleet).offer(1)
            assert isinstance(link, ThreadLink)
            link.unplug()

    assert same(rollouts(MaskedCounter, "worker", "none", move), rollouts(MaskedCounter, "worker", "none"))


@pytest.mark.slow
def test_a_worker_moves_while_others_collect() -> None:
    """With the schedule async, a worker moves between two rollouts of its own."""
    found, version = {}, 0
    with streaming(DiaryCounter, backend="threads") as stream:
        before = pids(stream.fleet)

        def collect() -> bool:
            nonlocal version
            stream.workers.publish(stream.weights(version), version)
            rollout = stream.workers.next()
            found[rollout[:3]] = stream.bytes_of(rollout)
            stream.workers.release(rollout)
            version += 1
            return pids(stream.fleet)[1] != before[1]

        assert not collect()
        placement(stream.fleet).offer(1)
        assert wait_until(collect)
        for _ in range(4):
            collect()
        assert pids(stream.fleet)[0] == before[0]
    with streaming(DiaryCounter, backend="sequential", groups=[[0], [1]]) as stream:
        for worker, number, version in sorted(found):
            buffer = stream.requests.collect(worker, number, stream.weights(version), math.inf)
            assert found[worker, number, version] == stream.bytes_of(WorkerRollout(worker, number, version, buffer))


def test_a_new_host_that_is_lost_at_the_move_costs_nothing() -> None:
    """The captured episodes continue on the host that replaces it."""
    with envfleet.make(Counter, 8, group_size=2, seed=10, backend="threads", workers=4) as fleet:
        fleet.reset()
        fleet.step(ACTIONS)
        link = placement(fleet).offer(3)
        assert isinstance(link, ThreadLink)
        link.unplug()
        fleet.relocation.move_idle(range(4))
        observations, _, _, _, infos = fleet.step(ACTIONS)
        assert observations[:, 0].tolist() == [2] * 8 and "restarted" not in infos
        assert fleet.statistics().restarts == 1


def test_a_place_that_is_lost_during_another_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node with two better places stops while the first worker moves there."""
    with envfleet.make(Counter, 8, group_size=2, seed=10, backend="threads", workers=4) as fleet:
        fleet.reset()
        places = placement(fleet)
        places.offer(1, 3)
        take = places.better_place

        def take_and_lose(worker: int) -> Any:
            place = take(worker)
            places.better.clear()
            return place

        monkeypatch.setattr(places, "better_place", take_and_lose)
        before = pids(fleet)
        fleet.relocation.move_idle(range(4))
        assert [a != b for a, b in zip(before, pids(fleet), strict=True)] == [False, True, False, False]
        assert fleet.step(ACTIONS)[0][:, 0].tolist() == [1] * 8


def test_a_place_that_is_lost_at_the_move_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker starts again where it is, and continues the captured episodes."""

    def lost(worker: int) -> Any:
        raise ChannelClosed

    with envfleet.make(Counter, 8, group_size=2, seed=10, backend="threads", workers=4) as fleet:
        fleet.reset()
        fleet.step(ACTIONS)
        places = placement(fleet)
        places.offer(1)
        monkeypatch.setattr(places, "better_place", lost)
        fleet.relocation.move_idle(range(4))
        observations, _, _, _, infos = fleet.step(ACTIONS)
        assert observations[:, 0].tolist() == [2] * 8 and "restarted" not in infos


def test_a_busy_worker_does_not_move() -> None:
    with envfleet.make(Counter, 8, group_size=2, seed=10, backend="threads", workers=4) as fleet:
        fleet.reset()
        placement(fleet).offer(0, 1)
        before = pids(fleet)
        fleet.relocation.move_idle([0, 3])
        assert [a != b for a, b in zip(before, pids(fleet), strict=True)] == [True, False, False, False]
        assert placement(fleet).moves() == [1]


def test_workers_whose_environments_cannot_be_saved_stay() -> None:
    with envfleet.make(Holds, 4, seed=10, group_size=2, backend="threads", workers=2) as fleet:
        fleet.reset()
        placement(fleet).offer(1)
        before = pids(fleet)
        fleet.relocation.move_idle(range(2))
        assert "Holds" in placement(fleet).stayed[1]
        assert pids(fleet) == before
        fleet.step(fleet.action_space.sample())


def test_workers_whose_environments_continue_inexactly_stay() -> None:
    with envfleet.make(Counter, 4, seed=10, group_size=2, backend="threads", workers=2) as fleet:
        fleet.reset()
        placement(fleet).offer(0)
        before = pids(fleet)
        fleet.relocation.why_inexact = lambda: "its simulator is behind a handle"
        fleet.relocation.move_idle(range(2))
        assert placement(fleet).stayed == {0: "its simulator is behind a handle"}
        assert pids(fleet) == before
