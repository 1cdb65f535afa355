"""Backend, workers and acting: measured if left open, kept if set, and without effect on the weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envfleet.algorithms.settings import PPO
from envfleet.fleet.auto import StepCost
from envfleet.fleet.hosting import group_count
from envfleet.training import placement
from envfleet.training.placement import place
from envfleet.training.presets import named_preset
from envfleet.training.stage import Stage
from tests.training.envs import FailsOnce, SlowReset
from tests.training.running import run, weights

SLOW, CHEAP = StepCost(2e-3, 2e-3), StepCost(10e-6, 10e-6)
WAITING = StepCost(20e-3, 1e-4, waits=True)


class Timed:
    """A stage whose environment has the given step cost."""

    def __init__(self, cost: StepCost) -> None:
        self._cost = cost

    def apply_within_step(self, function: Any) -> StepCost:
        return self._cost


@pytest.mark.parametrize(
    ("cost", "settings", "expected"),
    [
        (CHEAP, {"n_envs": 8}, ("processes", 2, "worker")),
        (SLOW, {"n_envs": 8}, ("processes", 2, "worker")),
        (SLOW, {"n_envs": 4}, ("processes", 2, "central")),  # one group to act for, two cores to step on
        (CHEAP, {"n_envs": 4}, ("sequential", 1, "worker")),
        (WAITING, {"n_envs": 8}, ("processes", 8, "central")),
        (WAITING, {"n_envs": 8, "workers": 3}, ("processes", 3, "central")),
        (WAITING, {"n_envs": 8, "acting": "worker"}, ("processes", 2, "worker")),
        (CHEAP, {"n_envs": 8, "acting": "central"}, ("sequential", 1, "central")),
        (CHEAP, {"n_envs": 4, "backend": "processes"}, ("processes", 1, "worker")),
        (SLOW, {"n_envs": 4, "backend": "threads"}, ("threads", 2, "central")),
        (WAITING, {"n_envs": 4, "acting": "worker"}, ("processes", 1, "worker")),
        (SLOW, {"n_envs": 8, "backend": "sequential"}, ("sequential", 1, "worker")),
        (SLOW, {"n_envs": 1}, ("sequential", 1, "worker")),
    ],
)
def test_backend_workers_and_acting(
    cost: StepCost, settings: dict[str, Any], expected: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "usable_cores", lambda: 2)
    choice = place(PPO(**settings), 1, Timed(cost))  # type: ignore[arg-type]
    assert (choice.backend, choice.workers, choice.acting) == expected, choice.reason


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"n_envs": 8, "workers": 6, "backend": "processes", "acting": "worker"},
            "2 workers, not 6: there are 2 groups to act for (--group-size 1 gives 8)",
        ),
        (
            {"n_envs": 4, "workers": 2, "schedule": "async"},
            "1 worker, not 2: there is 1 group to act for (--group-size 2 gives 2)",
        ),
        (
            {"n_envs": 10, "workers": 4, "backend": "threads", "acting": "worker"},
            "2 workers, not 4: there are 2 groups to act for (--group-size 3 gives 4)",
        ),
        (
            {"n_envs": 2, "workers": 3, "group_size": 1, "backend": "threads", "acting": "worker"},
            "2 workers, not 3: there are 2 environments",
        ),
    ],
)
def test_what_limits_the_workers_is_said(settings: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "usable_cores", lambda: 2)
    choice = place(PPO(**settings), 1, Timed(CHEAP))  # type: ignore[arg-type]
    assert choice.reason.endswith(f"; {said}")


@pytest.mark.parametrize("how", ["crash", "hang", "raise"])
def test_a_fault_while_a_step_is_timed_does_not_end_the_training(
    how: str, tmp_path: Path, limits_hold: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    options = {"backend": "auto", "workers": 2, "timeout": 1.0, "on_error": "restart", "quiet": False}
    trained = run(
        tmp_path / "run", env=FailsOnce, env_kwargs={"how": how, "mark": str(limits_hold)}, steps=384, **options
    )
    assert trained.metrics[-1]["step"] == 384
    assert "a step could not be timed: " in capfd.readouterr().err


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"n_envs": 4}, ("processes", 2, "central")),  # one group to act for
        ({"n_envs": 16}, ("processes", 2, "worker")),
        ({"n_envs": 4, "acting": "worker"}, ("processes", 1, "worker")),
        ({"n_envs": 4, "workers": 3}, ("processes", 3, "central")),
        ({"n_envs": 4, "backend": "threads"}, ("threads", 2, "central")),
    ],
)
def test_every_core_steps_what_could_not_be_timed(
    settings: dict[str, Any], expected: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "usable_cores", lambda: 2)
    monkeypatch.setattr(placement, "timed_step", lambda *_, **__: "a step could not be timed: it hung")
    choice = place(PPO(**settings), 1, Timed(SLOW))  # type: ignore[arg-type]
    assert (choice.backend, choice.workers, choice.acting) == expected


def test_all_workers_of_the_preset_for_most_steps_act() -> None:
    settings = PPO().filled(named_preset("max-throughput", PPO()).values)
    assert group_count(settings.n_envs, settings.group_size) == settings.workers == 8


def test_a_reset_may_take_longer_than_a_step_while_steps_are_timed() -> None:
    settings = PPO(n_envs=4, workers=2, timeout=2.0, restarts=0)
    stage = Stage(SlowReset, settings)
    try:
        choice = place(settings, 1, stage)
    finally:
        stage.close()
    assert "could not be timed" not in choice.reason


@pytest.mark.parametrize("schedule", ["sync", "overlap"])
def test_stepping_one_by_one_changes_no_weight(schedule: str, tmp_path: Path) -> None:
    """One acting group of four, stepped by one worker that acts, or by several workers with central acting."""
    options = {"n_envs": 4, "steps": 4 * 32 * 3, "minibatch_size": 32, "memory": "gru", "schedule": schedule}
    run(tmp_path / "one", **options, acting="worker")
    run(tmp_path / "four", **options, acting="central", backend="threads", workers=4)
    run(tmp_path / "processes", **options, acting="central", backend="processes", workers=3)
    assert weights(tmp_path / "one") == weights(tmp_path / "four") == weights(tmp_path / "processes")
