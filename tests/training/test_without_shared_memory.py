"""Training with workers that have a block of their own: the same weights, also after a resume on another backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envfleet.training import resume, train
from tests.fleet.loop_back import use_loop_back
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
