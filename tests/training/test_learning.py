"""PPO learns by preset alone: each case states its seed, its budget of steps and the score to reach.

The trainings run side by side in two processes while the tests wait for them one after the other.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor

import pytest

from tests.training.learning import Case, play
from tests.training.worlds import STEPS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
HERE = "tests.training.worlds"

CASES = [
    # All of five seeds; the budget that was promised is 100,000 steps.
    *(Case("CartPole-v1", seed, 50_000, 475.0) for seed in range(1, 6)),
    Case("Acrobot-v1", 1, 60_000, -100.0),
    Case("Pendulum-v1", 1, 100_000, -300.0),
    Case(f"{HERE}:Masked", 1, 20_000, 0.95 * STEPS),
    Case(f"{HERE}:Nested", 1, 40_000, 0.95 * STEPS),
    # The preset of images and its convolutions; 4 is perfect, and random play gets 1.
    Case("tests.training.picture_worlds:Quarters", 1, 20_000, 3.6),
    Case(f"{HERE}:RememberCue", 1, 40_000, 0.95, "gru"),
    Case(f"{HERE}:RememberCue", 1, 60_000, 0.95, "lstm"),
]
# What no policy without memory can beat: the better of two answers that have nothing to do with the cue.
WITHOUT_MEMORY = Case(f"{HERE}:RememberCue", 1, 40_000, 0.5)


@pytest.fixture(scope="module")
def scores(request: pytest.FixtureRequest) -> Iterator[dict[Case, Future[float]]]:
    """The scores of the cases that were asked for, as they come."""
    tests = [item for item in request.session.items if getattr(item, "module", None) is request.module]
    wanted = [test.callspec.params["case"] for test in tests]  # type: ignore[attr-defined]
    # Spawned: a forked child of a process that has computed with torch may hang.
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        yield {case: pool.submit(play, case) for case in wanted}
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_preset_reaches_the_score(case: Case, scores: dict[Case, Future[float]]) -> None:
    assert scores[case].result() >= case.score


@pytest.mark.parametrize("case", [WITHOUT_MEMORY], ids=str)
def test_without_memory_a_cue_is_forgotten(case: Case, scores: dict[Case, Future[float]]) -> None:
    assert scores[case].result() == pytest.approx(case.score, abs=0.15)
