"""Timed runs: what is under way at the mark is discarded, and the last whole update is what was saved."""

from __future__ import annotations

import math
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from envfleet import clock
from envfleet.errors import OutOfTimeError, SettingsError
from envfleet.runs.checkpoints import Checkpoints
from envfleet.runs.metrics import read_metrics
from envfleet.training import resume
from envfleet.training.loop import Training
from tests.rollout.collecting import collecting
from tests.training.running import run, weights

UPDATE = 12 * 32  # steps
LOOKS = 2 * 32 + 2 * 4  # at the clock in an update: each step of two groups, each minibatch


def out_of_time_after(monkeypatch: pytest.MonkeyPatch, looks: int) -> None:
    """The clock says that the time is over at the look after so many."""
    counted = iter(range(looks))
    monkeypatch.setattr(clock, "time", SimpleNamespace(monotonic=lambda: 0.0 if next(counted, None) is not None else math.inf))


@pytest.mark.parametrize(
    ("looks", "where"), [(2 * LOOKS + 9, "in the third rollout"), (3 * LOOKS - 2, "between the last minibatches")]
)
@pytest.mark.parametrize("acting", ["worker", "central"])
def test_a_cut_run_is_the_run_without_what_was_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: int, where: str, acting: str
) -> None:
    """Two updates and a part of a third one: as if two updates had been asked for."""
    timed: dict[str, Any] = {"group_size": 6, "acting": acting, "steps": None, "duration": 1.0, "checkpoint_every": 1}
    if acting == "central":  # all groups are stepped together
        looks -= (looks // LOOKS) * 32 + (9 if "rollout" in where else 32)
        looks += 5 if "rollout" in where else 0
    run(tmp_path / "two", **{**timed, "duration": None, "steps": 2 * UPDATE})
    out_of_time_after(monkeypatch, looks)
    run(tmp_path / "timed", **timed)
    assert Checkpoints(tmp_path / "timed" / "checkpoints").step_of("final") == 2 * UPDATE
    assert weights(tmp_path / "timed") == weights(tmp_path / "two"), where
    assert max(row["step"] for row in read_metrics(tmp_path / "timed" / "metrics.jsonl")) == 2 * UPDATE


def test_a_cut_run_can_be_given_more_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        out_of_time_after(patched, 2 * LOOKS + 9)
        run(tmp_path / "run", group_size=6, steps=None, duration=1.0, checkpoint_every=1)
    resume(tmp_path / "run", quiet=True, steps=3 * UPDATE)
    run(tmp_path / "whole", group_size=6)
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


def test_the_summary_says_what_was_discarded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out_of_time_after(monkeypatch, 3 * LOOKS - 2)
    run(tmp_path / "run", group_size=6, steps=None, duration=1.0, checkpoint_every=1, quiet=False)
    assert f"discarded {UPDATE} steps" in " ".join(capsys.readouterr().err.split())


def test_time_that_is_over_before_the_first_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out_of_time_after(monkeypatch, 5)
    with pytest.raises(SettingsError, match=r"before the first update[\s\S]*--duration"):
        run(tmp_path / "run", steps=None, duration=1.0)
    assert not (tmp_path / "run").exists()


class Endless(gymnasium.Env[Any, Any]):
    """Never returns from its third step."""

    observation_space = spaces.Box(-1, 1, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        while self._steps == 3:
            time.sleep(1.0)
        return np.zeros(3, np.float32), 0.0, False, False, {}


@pytest.mark.parametrize("acting", ["worker", "central"])
@pytest.mark.parametrize("place", [{}, {"backend": "threads"}, {"backend": "processes"}], ids=str)
def test_a_rollout_is_given_up_at_its_time(acting: str, place: dict[str, Any]) -> None:
    with collecting("CartPole-v1", acting=acting, **place) as crew:
        crew.collect(0)
        crew.collector.begin(1, time.monotonic())
        with pytest.raises(OutOfTimeError):
            crew.collector.finish()


@pytest.mark.parametrize("acting", ["worker", "central"])
def test_a_worker_that_is_inside_a_step_is_not_waited_for(acting: str) -> None:
    with collecting(Endless, acting=acting, backend="processes", n_envs=4) as crew:
        crew.collector.begin(0, time.monotonic() + 0.5)
        with pytest.raises(OutOfTimeError):
            crew.collector.finish()


@pytest.mark.parametrize(
    ("left", "rounds", "expected"), [(100.0, [10.0, 20.0], False), (50.0, [10.0, 20.0], True), (50.0, [], True)]
)
def test_an_update_that_may_be_the_last_is_saved(left: float, rounds: list[float], expected: bool) -> None:
    training = SimpleNamespace(progress=SimpleNamespace(until=time.monotonic() + left), _last_rounds=rounds)
    assert Training._may_be_the_last(training) is expected  # type: ignore[arg-type]


def test_without_a_duration_nothing_is_saved_for_it() -> None:
    training = SimpleNamespace(progress=SimpleNamespace(until=math.inf), _last_rounds=[])
    assert Training._may_be_the_last(training) is False  # type: ignore[arg-type]
