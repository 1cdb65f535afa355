"""Asynchronous training learns. Timing changes its results, so the scores leave a wide margin."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from envfleet.algorithms.settings import DQN, PPO, SAC
from envfleet.runs.metrics import read_metrics
from envfleet.training import train
from envfleet.training.evaluating import evaluate_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
SEED, STEPS, SCORE = 1, 50_000, 195.0  # random play gets 22; in eleven runs on a busy machine, the lowest score was 499
WORKERS: dict[str, dict[str, Any]] = {
    "threads": {"backend": "threads", "workers": 2},
    "processes": {"backend": "processes", "workers": 2},
}


@pytest.mark.parametrize("workers", [pytest.param("threads", marks=pytest.mark.proof), "processes"])
def test_ppo_learns_cartpole(workers: str, tmp_path: Path) -> None:
    where = WORKERS[workers]
    given: dict[str, Any] = {"env": "CartPole-v1", "seed": SEED, "steps": STEPS, "schedule": "async", **where}
    train(PPO(**given, eval_every=0, quiet=True, output_dir=str(tmp_path / "run")))
    assert evaluate_run(tmp_path / "run", episodes=20).mean_reward >= SCORE


@pytest.mark.proof
def test_ppo_with_memory_learns_to_remember(tmp_path: Path) -> None:
    """Always giving the same answer gets 0.5."""
    env = "tests.training.worlds:RememberCue"
    given: dict[str, Any] = {"env": env, "seed": SEED, "steps": 40_000, "memory": "gru", "schedule": "async"}
    train(PPO(**given, **WORKERS["threads"], eval_every=0, quiet=True, output_dir=str(tmp_path / "run")))
    assert evaluate_run(tmp_path / "run", episodes=100, trust=True).mean_reward >= 0.75


def best_evaluation(folder: Path) -> float:
    """The highest mean return of the evaluations: off-policy learners may fall back at the end, on any schedule."""
    return max(line.get("eval/mean_reward", -math.inf) for line in read_metrics(folder / "metrics.jsonl"))


@pytest.mark.proof
def test_dqn_learns_cartpole(tmp_path: Path) -> None:
    """In eight runs, the best evaluation was always 500."""
    given: dict[str, Any] = {"env": "CartPole-v1", "seed": SEED, "steps": 50_000, "schedule": "async"}
    train(DQN(**given, **WORKERS["threads"], eval_every=5_000, quiet=True, output_dir=str(tmp_path / "run")))
    assert best_evaluation(tmp_path / "run") >= SCORE


@pytest.mark.proof
def test_sac_swings_up_a_pendulum(tmp_path: Path) -> None:
    """Chance gets -1,200. In eight runs, half of them with the schedule sync, the lowest best evaluation was -202."""
    given: dict[str, Any] = {"env": "Pendulum-v1", "seed": SEED, "steps": 6_000, "schedule": "async", "n_envs": 2}
    given |= {"hidden": (64, 64), "minibatch_size": 128, "learning_rate": 2e-3, "gamma": 0.98, "rollout_steps": 2}
    given |= {"learning_starts": 200, "group_size": 1}
    train(SAC(**given, **WORKERS["threads"], eval_every=1_000, quiet=True, output_dir=str(tmp_path / "run")))
    assert best_evaluation(tmp_path / "run") >= -400.0
