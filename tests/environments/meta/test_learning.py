"""RL²: PPO with memory learns to adapt. Each case states its seed, its budget and the score on held-out tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envfleet.algorithms.settings import PPO
from envfleet.training import train
from envfleet.training.evaluating import evaluate_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def trial_return(folder: Path, *, tasks: int, **given: Any) -> float:
    train(PPO(**given, eval_every=0, quiet=True, output_dir=str(folder)))
    adaptation = evaluate_run(folder, tasks=tasks).adaptation
    assert adaptation is not None and adaptation.tasks == tasks
    return adaptation.trial_return


def test_an_agent_with_memory_learns_two_armed_bandits(tmp_path: Path) -> None:
    """100,000 steps with seed 1 reach 5.5; the optimum is 6.02, and chance 5."""
    given: dict[str, Any] = {"env": "envfleet/Bandit-v0", "env_kwargs": {"arms": 2}, "seed": 1, "steps": 100_000}
    small = {"n_envs": 64, "minibatch_size": 800, "memory_size": 32, "hidden": (32,), "backend": "sequential"}
    assert trial_return(tmp_path / "run", tasks=600, memory="gru", **given, **small) >= 5.5


@pytest.mark.proof
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_preset_of_the_bandit(tmp_path: Path, seed: int) -> None:
    """A million steps reach 6.40 of 6.66."""
    given: dict[str, Any] = {"env": "envfleet/Bandit-v0", "memory": "gru", "seed": seed}
    assert trial_return(tmp_path / "run", tasks=2000, **given) >= 6.40


@pytest.mark.proof
def test_the_preset_of_the_point_robots(tmp_path: Path) -> None:
    """Two million steps with seed 1 reach 60 on PointRobotSparse; the published agent without memory gets 12."""
    given: dict[str, Any] = {"env": "envfleet/PointRobotSparse-v0", "memory": "gru", "seed": 1, "steps": 2_000_000}
    assert trial_return(tmp_path / "run", tasks=500, **given) >= 60


@pytest.mark.proof
def test_without_memory_an_agent_cannot_adapt(tmp_path: Path) -> None:
    """200,000 steps with seed 1. The best fixed arm is worth 5, and the last reward alone helps a little."""
    given: dict[str, Any] = {"env": "envfleet/Bandit-v0", "seed": 1, "steps": 200_000}
    assert trial_return(tmp_path / "run", tasks=600, **given) <= 6.2
