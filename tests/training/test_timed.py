"""Timed runs: the unfinished update is discarded when time is up, and the last complete update is saved."""

from __future__ import annotations

import math
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from envfleet import clock
from envfleet.errors import OutOfTimeError, SettingsError
from envfleet.runs.checkpoints import Checkpoints
from envfleet.runs.metrics import read_metrics
from envfleet.training import exactness, resume
from envfleet.training.callbacks import Callback, Moment
from envfleet.training.loop import Training
from envfleet.training.progress import Progress
from tests.rollout.collecting import collecting
from tests.training.envs import Endless
from tests.training.running import run, weights

UPDATE = 12 * 32  # steps
CONSTANT: dict[str, Any] = {"learning_rate_schedule": "constant", "clip_range_schedule": "constant"}
TIMED: dict[str, Any] = {**CONSTANT, "steps": None, "duration": 1.0, "checkpoint_every": 1}


class Clock:
    """Counts reads of the clock; after `enough` reads the time is over."""

    def __init__(self, enough: int | None = None) -> None:
        self.looks, self._enough = 0, enough

    def monotonic(self) -> float:
        self.looks += 1
        return math.inf if self._enough is not None and self.looks > self._enough else 0.0


def looks_at_updates(folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> list[int]:
    """Return how often a run of three updates has read the clock after each update."""
    looks, counting = [], Clock()

    class Note(Callback):
        def on_update(self, moment: Moment) -> None:
            looks.append(counting.looks)

    with monkeypatch.context() as patched:
        patched.setattr(clock, "time", counting)
        run(folder, callbacks=[Note()], **CONSTANT, **options)
    return looks


@pytest.mark.parametrize("acting", ["worker", "central"])
def test_a_cut_run_is_the_run_without_what_was_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, acting: str
) -> None:
    """Cut in the third update, the run equals one that was asked for two."""
    _, second, third = looks_at_updates(tmp_path / "three", monkeypatch, acting=acting)
    run(tmp_path / "two", acting=acting, **CONSTANT, steps=2 * UPDATE)
    for name, looks in (("in-the-rollout", second + 9), ("between-minibatches", third - 2)):
        monkeypatch.setattr(clock, "time", Clock(looks))
        run(tmp_path / name, acting=acting, **TIMED)
        assert Checkpoints(tmp_path / name / "checkpoints").step_of("final") == 2 * UPDATE
        assert weights(tmp_path / name) == weights(tmp_path / "two")
        assert max(row["step"] for row in read_metrics(tmp_path / name / "metrics.jsonl")) == 2 * UPDATE


def test_a_cut_run_says_what_it_discarded_and_can_be_given_more_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    third = looks_at_updates(tmp_path / "three", monkeypatch)[-1]
    with monkeypatch.context() as patched:
        patched.setattr(clock, "time", Clock(third - 2))
        run(tmp_path / "run", quiet=False, **TIMED)
    assert f"discarded {UPDATE} steps" in " ".join(capsys.readouterr().err.split())
    resume(tmp_path / "run", quiet=True, steps=3 * UPDATE)
    assert weights(tmp_path / "run") == weights(tmp_path / "three")


def test_steps_of_a_rollout_under_way_count_as_discarded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    second = looks_at_updates(tmp_path / "three", monkeypatch, acting="central")[1]
    monkeypatch.setattr(clock, "time", Clock(second + 9))
    run(tmp_path / "run", quiet=False, acting="central", **TIMED)
    (discarded,) = re.findall(r"discarded ([\d,]+) steps", " ".join(capsys.readouterr().err.split()))
    assert 0 < int(discarded.replace(",", "")) < UPDATE


def test_exactness_is_tested_before_the_clock_of_a_timed_run_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test starts a process. In a short run it could take longer than the time that is left at the first save."""
    order: list[str] = []
    monkeypatch.setattr(exactness, "why_inexact", lambda *args, **kwargs: order.append("tested"))
    monkeypatch.setattr(exactness, "_known_exact", set())
    begin = Progress.begin
    monkeypatch.setattr(Progress, "begin", lambda self: (order.append("clock"), begin(self)))
    run(tmp_path / "run", steps=2 * UPDATE, duration=1.0)
    assert order == ["tested", "clock"]


def test_time_that_is_over_before_the_first_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "time", Clock(5))
    with pytest.raises(SettingsError, match=r"before the first update[\s\S]*--duration"):
        run(tmp_path / "run", steps=None, duration=1.0)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("acting", ["worker", "central"])
@pytest.mark.parametrize("backend", ["sequential", "threads", "processes"])
def test_a_rollout_is_given_up_at_its_time(acting: str, backend: str, start_method: str | None) -> None:
    where = {"backend": backend, **({"start_method": start_method} if backend == "processes" else {})}
    with collecting("CartPole-v1", acting=acting, **where) as rig:
        rig.collect(0)
        rig.collector.begin(1, time.monotonic())
        with pytest.raises(OutOfTimeError):
            rig.collector.finish()


@pytest.mark.parametrize("acting", ["worker", "central"])
def test_a_worker_that_is_inside_a_step_is_not_waited_for(acting: str, start_method: str | None) -> None:
    with collecting(Endless, acting=acting, backend="processes", start_method=start_method, n_envs=4) as rig:
        rig.collector.begin(0, time.monotonic() + 0.5)
        with pytest.raises(OutOfTimeError):
            rig.collector.finish()


@pytest.mark.parametrize(
    ("left", "rounds", "expected"), [(100.0, [10.0, 20.0], False), (50.0, [10.0, 20.0], True), (50.0, [], True)]
)
def test_an_update_that_may_be_the_last_is_saved(left: float, rounds: list[float], expected: bool) -> None:
    training = SimpleNamespace(progress=SimpleNamespace(time_left=left), _last_rounds=rounds)
    assert Training._may_be_the_last(training) is expected  # type: ignore[arg-type]


def test_without_a_duration_nothing_is_saved_for_it() -> None:
    training = SimpleNamespace(progress=SimpleNamespace(time_left=math.inf), _last_rounds=[])
    assert Training._may_be_the_last(training) is False  # type: ignore[arg-type]
