"""Masks in all of Gymnasium's forms are respected by training, evaluation and random play."""

from __future__ import annotations

from pathlib import Path

import pytest

import envfleet
from envfleet.runs.evaluation import random_play
from tests.training.envs import OneAllowed
from tests.training.running import SMALL, run

KINDS = pytest.mark.parametrize("kind", ["discrete", "row", "tuple", "switches"])


@pytest.mark.usefixtures("start_method")
@KINDS
@pytest.mark.parametrize("acting", ["worker", "central"])
def test_training_and_evaluation_keep_to_the_mask(kind: str, acting: str, tmp_path: Path) -> None:
    options = {"steps": SMALL["n_envs"] * SMALL["rollout_steps"], "acting": acting, "eval_every": 1, "eval_episodes": 2}
    done = run(tmp_path / "run", env=lambda: OneAllowed(kind), **options)
    assert done.metrics[-1]["eval/mean_reward"] == 5.0


@KINDS
def test_random_play_keeps_to_the_mask(kind: str) -> None:
    returns, steps = random_play(lambda: OneAllowed(kind), steps=50, seed=3)
    assert (returns, steps) == ([5.0] * 10, 50)


@pytest.mark.parametrize(
    "kind", ["discrete", *(pytest.param(kind, marks=pytest.mark.proof) for kind in ("row", "switches", "tuple"))]
)
def test_the_check_finds_them_in_order(kind: str) -> None:
    assert envfleet.check(lambda: OneAllowed(kind)).problems == ()
