"""Rate schedules. Linear: the first update has the full rate, update u of N the fraction 1 - (u - 1) / N."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envfleet.algorithms.settings import DQN
from envfleet.runs.run import Run
from envfleet.training import resume, train
from envfleet.training.callbacks import Callback
from tests.training.running import SMALL, run, small

UPDATE = 12 * 32  # steps
LINEAR: dict[str, Any] = {
    "learning_rate": 0.008,
    "learning_rate_schedule": "linear",
    "clip_range": 0.4,
    "clip_range_schedule": "linear",
}


def metric(run: Run, name: str) -> list[float]:
    return [row[name] for row in run.metrics if name in row]


class StopsAfter(Callback):
    def __init__(self, updates: int) -> None:
        self.left = updates

    def on_update(self, moment: Any) -> None:
        self.left -= 1
        moment.stop = self.left <= 0


@pytest.mark.parametrize("schedule", ["sync", "overlap"])
def test_the_rates_of_ppo_begin_as_given_and_never_reach_zero(tmp_path: Path, schedule: str) -> None:
    done = run(tmp_path, steps=4 * UPDATE, schedule=schedule, **LINEAR)
    assert metric(done, "train/learning_rate") == pytest.approx([0.008, 0.006, 0.004, 0.002])
    assert metric(done, "train/clip_range") == pytest.approx([0.4, 0.3, 0.2, 0.1])


def test_warm_up_and_cosine(tmp_path: Path) -> None:
    cosine = {"learning_rate_schedule": "cosine", "clip_range_schedule": "cosine", "learning_rate_warmup": 0.5}
    done = run(tmp_path, steps=4 * UPDATE, **{**LINEAR, **cosine})
    assert metric(done, "train/learning_rate") == pytest.approx([0.004, 0.008, 0.008, 0.004])
    assert metric(done, "train/clip_range") == pytest.approx([0.4, 0.2 + 0.1 * 2**0.5, 0.2, 0.2 - 0.1 * 2**0.5])


def test_the_last_update_counts_what_is_left_of_a_budget_that_it_does_not_fill(tmp_path: Path) -> None:
    done = run(tmp_path, steps=2 * UPDATE + UPDATE // 2, **LINEAR)
    assert metric(done, "train/learning_rate") == pytest.approx([0.008, 0.0048, 0.0016])


@pytest.mark.parametrize("schedule", ["sync", "overlap"])
def test_a_resumed_run_goes_on_with_the_same_rates(tmp_path: Path, schedule: str) -> None:
    run(tmp_path, [StopsAfter(2)], steps=4 * UPDATE, schedule=schedule, **LINEAR)
    done = resume(tmp_path, quiet=True)
    assert metric(done, "train/learning_rate") == pytest.approx([0.008, 0.006, 0.004, 0.002])


def test_of_a_budget_in_episodes_those_before_the_rollout_count(tmp_path: Path) -> None:
    settings = small(tmp_path, num_episodes=60, **LINEAR)
    done = train(settings.as_given(settings.given - {"steps"}).but(steps=None))
    ended = [0.0, *metric(done, "rollout/episodes")[:-1]]
    assert len(ended) > 2
    assert metric(done, "train/learning_rate") == pytest.approx([0.008 * (1 - count / 60) for count in ended])


@pytest.mark.parametrize(
    ("rate", "rates"),
    [
        ({"learning_rate_schedule": "linear"}, [0.008, 0.006, 0.004, 0.002]),
        ({"learning_rate_schedule": "cosine", "learning_rate_warmup": 0.5}, [0.004, 0.008, 0.008, 0.004]),
    ],
)
def test_the_rate_of_dqn_is_that_before_the_rollout_and_its_exploration_that_after_it(
    tmp_path: Path, rate: dict[str, Any], rates: list[float]
) -> None:
    kept = {name: SMALL[name] for name in ("env", "seed", "backend", "eval_every", "quiet", "hidden")}
    settings = DQN(
        output_dir=str(tmp_path),
        n_envs=8,
        rollout_steps=8,
        steps=4 * 64,
        learning_starts=1,
        replay_size=320,
        learning_rate=0.008,
        initial_epsilon=1.0,
        epsilon_min=0.2,
        exploration_fraction=1.0,
        **kept,
        **rate,
    )
    done = train(settings)
    assert metric(done, "train/learning_rate") == pytest.approx(rates)
    # The reported rate is that of the next rollouts.
    assert metric(done, "rollout/exploration_rate") == pytest.approx([0.8, 0.6, 0.4, 0.2])
