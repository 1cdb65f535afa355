"""Workers avoid each other's cores, but none is bound to one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import envfleet
from envfleet.fleet import cores
from envfleet.fleet.backends import processes
from envfleet.fleet.cores import OwnCore, own_core

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a matter of Linux")
FREE = {4, 5, 6}


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> list[set[int]]:
    made: list[set[int]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(FREE))
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cores: made.append(set(cores)))
    monkeypatch.setattr(cores, "uses_linux", lambda: True)
    return made


def worker(monkeypatch: pytest.MonkeyPatch, *, on: int, others: list[int], index: int = 1) -> OwnCore | None:
    """Return a worker that runs on core `on`, beside workers that last ran on `others`."""
    words = memoryview(bytearray(8 * (1 + len(others)))).cast("q")
    places = list(range(len(words)))
    for place, core in zip([place for place in places if place != index], others, strict=True):
        words[place] = core + 1
    own = own_core(words, places, index)
    if own is not None:
        monkeypatch.setattr(own, "_current_core", lambda: on)
        own.keep()
    return own


@pytest.mark.parametrize(
    ("on", "others", "moved"),
    [
        (4, [4], [{5}, FREE]),  # shared: it moves to its own core, then may run anywhere again
        (6, [4, 6], [{5}, FREE]),
        (4, [6], []),  # alone
        (5, [5], []),  # on its own core: the other worker moves
        (4, [4, 4, 4], []),  # more workers than cores: they have to share
    ],
)
def test_a_worker_moves_where_it_shares_a_core(
    moves: list[set[int]], monkeypatch: pytest.MonkeyPatch, on: int, others: list[int], moved: list[set[int]]
) -> None:
    worker(monkeypatch, on=on, others=others)
    assert moves == moved


def test_a_core_that_was_taken_away_is_left_alone(moves: list[set[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    own = worker(monkeypatch, on=6, others=[4])
    assert own is not None
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {4, 6})
    own._words[0] = 6 + 1
    own.keep()
    assert moves == []


def test_workers_may_run_everywhere_after_many_steps() -> None:
    with envfleet.make("CartPole-v1", 8, backend="processes", workers=2, quiet=True) as fleet:
        fleet.reset(seed=1)
        for _ in range(200):
            fleet.step(fleet.action_space.sample())
        for each in fleet.statistics().workers:
            assert os.sched_getaffinity(each.pid) == os.sched_getaffinity(0)


def test_every_worker_of_a_fleet_keeps_to_its_core(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Uses fork, so that workers inherit the patched `keep`."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(FREE))
    monkeypatch.setattr(processes, "can_spin", lambda: True)
    monkeypatch.setattr(OwnCore, "keep", lambda own: (tmp_path / str(own._home)).touch())
    with envfleet.make("CartPole-v1", 4, backend="processes", workers=2, start_method="fork", quiet=True) as fleet:
        fleet.reset(seed=1)
        fleet.step(fleet.action_space.sample())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["4", "5"]
