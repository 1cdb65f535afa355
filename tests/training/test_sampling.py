"""Metrics of a run's use of the machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from envfleet.runs.live_view import OURS
from envfleet.runs.metrics import read_metrics
from envfleet.training import sampling
from envfleet.training.loop import Training
from envfleet.training.sampling import Sampler, shared_memory_counted_once
from tests.training.running import StopAfter, run

KEYS = {
    f"system/{name}"
    for name in (
        "cpu_percent",
        "cpu_percent_caller",
        "cpu_percent_learner",
        "cpu_percent_workers",
        "cpu_percent_others",
    )
} | {"system/memory_mb"}


def burn(seconds: float) -> None:
    until = os.times().user + seconds
    while os.times().user < until:
        pass


def test_processor_time_is_counted_where_it_is_spent() -> None:
    sampler = Sampler()
    burn(0.3)
    sampler.add_learner(0.1)
    child = subprocess.Popen(
        [sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass\nprint(1, flush=True)\ninput()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdout is not None and child.stdin is not None
    child.stdout.readline()
    metrics = sampler.sample([child.pid])
    child.communicate(b"\n")
    assert metrics.keys() == KEYS
    workers, caller, learner = (metrics[f"system/cpu_percent_{who}"] for who in ("workers", "caller", "learner"))
    # These are shares of the same time, so their ratios do not depend on its length.
    assert workers >= 0.25 / 0.1 * learner > 0
    assert caller + learner >= 0.25 / 0.1 * learner
    assert metrics["system/cpu_percent"] == pytest.approx(workers + caller + learner)


def test_memory_that_processes_share_is_counted_once() -> None:
    assert 2**20 < shared_memory_counted_once(os.getpid()) < 2**34
    assert shared_memory_counted_once(2**22 + 1) == 0


def test_a_run_records_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start_method: str | None) -> None:
    monkeypatch.setattr(sampling, "LEAST_SECONDS", 0.0)
    run(tmp_path / "run", backend="processes", workers=2, start_method=start_method)
    rows = [row for row in read_metrics(tmp_path / "run" / "metrics.jsonl") if "system/memory_mb" in row]
    assert rows and rows[-1].keys() >= KEYS
    assert rows[-1]["system/memory_mb"] > 50
    assert all(name in ("step", "time") or name.startswith(OURS) for name in rows[-1])  # not mistaken for user metrics
    seconds = [row["time/seconds"] for row in rows]
    assert seconds == sorted(seconds)


def test_samples_are_rarer_where_they_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = Sampler()
    clock = iter([100.0, 102.0])  # a sample that took two seconds
    monkeypatch.setattr(sampling.time, "thread_time", lambda: next(clock))
    monkeypatch.setattr(sampling.time, "monotonic", lambda: 1000.0)
    sampler.sample([])
    assert sampler._next == pytest.approx(1000.0 + 2.0 / sampling.MOST_SHARE)


@pytest.mark.parametrize(("seconds", "taken"), [(2.5, False), (6.0, True)])
def test_the_last_sample_comes_sooner_within_the_share(
    seconds: float, *, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two samples of 10 ms are half a percent of 4 seconds."""
    clock = SimpleNamespace(now=100.0, cpu=0.0)

    def cpu() -> float:
        clock.cpu += 0.01
        return clock.cpu

    clocks = SimpleNamespace(perf_counter=lambda: clock.now, monotonic=lambda: clock.now, thread_time=cpu)
    monkeypatch.setattr(sampling, "time", clocks)
    monkeypatch.setattr(sampling, "LEAST_SECONDS", 60.0)
    sampler = Sampler()
    sampler.sample([])
    clock.now += seconds
    assert not sampler.due()
    assert sampler.due(last=True) is taken


@pytest.mark.parametrize("budget", [{}, {"steps": None, "duration": 1.0}])
def test_the_last_update_is_sampled_too(
    budget: dict[str, float | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timed run knows only that an update may be its last; here it is the third."""
    monkeypatch.setattr(sampling, "LEAST_SECONDS", 3600.0)
    monkeypatch.setattr(sampling, "MOST_SHARE_WITH_LAST", 1e9)
    if "duration" in budget:
        monkeypatch.setattr(Training, "_may_be_the_last", lambda training: training.progress.steps == 3 * 12 * 32)
    run(tmp_path / "run", callbacks=[StopAfter(3)], **budget)
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert ["system/memory_mb" in row for row in rows] == [True, False, True]
