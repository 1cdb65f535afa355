"""Training with workers that have a block of their own: the same weights, also after a resume on another backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envfleet.training import resume, train
from envfleet.training.callbacks import Callback, Moment
from tests.fleet.loop_back import Placement, ThreadLink, use_loop_back
from tests.rollout.envs import LateMaskedCounter
from tests.training.running import StopAfter, run, weights
from tests.training.test_dqn_runs import EXTRAS
from tests.training.test_dqn_runs import small as small_dqn
from tests.training.worlds import Masked, Nested

LOOP_BACK: dict[str, Any] = {"backend": "threads", "workers": 2}
WORLDS = {"masks": Masked, "late masks": LateMaskedCounter, "dictionaries": Nested}


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("schedule", [pytest.param("sync", marks=pytest.mark.proof), "overlap"])
def test_masks_and_dictionaries(tmp_path: Path, world: str, schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"env": WORLDS[world], "schedule": schedule, "memory": "gru", "log_info": ("coins:sum",)}
    run(tmp_path / "one", **options)
    use_loop_back("loop-back", monkeypatch)
    run(tmp_path / "two", **options, **LOOP_BACK)
    assert weights(tmp_path / "one") == weights(tmp_path / "two")


@pytest.mark.parametrize(("extras", "schedule"), [("everything", "sync"), ("frames", "overlap")])
def test_dqn(tmp_path: Path, extras: str, schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {**EXTRAS[extras], "schedule": schedule}
    train(small_dqn(tmp_path / "one", **options))
    use_loop_back("loop-back", monkeypatch)
    train(small_dqn(tmp_path / "two", **options, **LOOP_BACK))
    assert weights(tmp_path / "one") == weights(tmp_path / "two")


ASYNC: dict[str, Any] = {"schedule": "async", "steps": 12 * 32 * 6}


@pytest.mark.slow
def test_workers_on_two_hosts_collect_without_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorded order gives the same weights in shared memory: each rollout had the weights that it should have."""
    use_loop_back("loop-back-hosts", monkeypatch)
    run(tmp_path / "hosts", **ASYNC, **LOOP_BACK, record_order=True)
    run(tmp_path / "again", **ASYNC, backend="sequential", replay_order=tmp_path / "hosts" / "order.jsonl")
    assert weights(tmp_path / "again") == weights(tmp_path / "hosts")


class Unplug(Callback):
    """Lets a host vanish after the second update."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.updates = 0
        self.lost: ThreadLink | None = None
        self._placements: list[Placement] = []
        bind = Placement.bind

        def remember(placement: Placement, backend: Any) -> None:
            if self.updates == 0:  # the last one before the training is that of its fleet
                self._placements.append(placement)
            bind(placement, backend)

        monkeypatch.setattr(Placement, "bind", remember)

    def on_update(self, moment: Moment) -> None:
        self.updates += 1
        if self.updates == 2:
            self.lost = self.first_host
            self.lost.unplug()

    @property
    def first_host(self) -> ThreadLink:
        link = self._placements[-1].links[0]
        assert isinstance(link, ThreadLink)
        return link


@pytest.mark.slow
def test_an_asynchronous_run_survives_the_loss_of_a_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_loop_back("loop-back-hosts", monkeypatch)
    unplug = Unplug(monkeypatch)
    run(tmp_path / "run", [unplug], **ASYNC, **LOOP_BACK)
    assert unplug.updates >= 6
    assert unplug.lost is not None and unplug.first_host is not unplug.lost  # it was replaced


@pytest.mark.parametrize(("first", "then"), [("loop-back", "sequential"), ("sequential", "loop-back")])
@pytest.mark.parametrize(
    ("schedule", "env"), [("overlap", "CartPole-v1"), pytest.param("sync", Masked, marks=pytest.mark.proof)]
)
def test_a_run_that_resumes_elsewhere(
    tmp_path: Path, first: str, then: str, schedule: str, env: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory, masks and, with overlap, a rollout that is not learned from yet move from one block to the other."""
    use_loop_back("loop-back", monkeypatch)
    where = {"loop-back": LOOP_BACK, "sequential": {"backend": "sequential", "workers": None}}
    options: dict[str, Any] = {"env": env, "schedule": schedule, "memory": "gru", "steps": 12 * 32 * 4}
    run(tmp_path / "whole", **options)
    run(tmp_path / "cut", [StopAfter(2)], **{**options, **where[first]})
    resume(tmp_path / "cut", quiet=True, trust=True, **where[then])
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")
