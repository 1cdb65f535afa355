"""The summary at the end of a run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from envfleet.training.summary import results_of


@pytest.mark.parametrize(
    ("episodes", "words"),
    [
        (0, "no episode has ended"),
        (1, "2.00 (mean of the last 1 episode), 3.00 (of the last 1)"),
        (30, "2.00 (mean of the last 30 episodes), 3.00 (of the last 10)"),
        (3000, "2.00 (mean of the last 100 episodes), 3.00 (of the last 10)"),
    ],
)
def test_the_return_is_a_mean_of_the_episodes_that_have_ended(episodes: int, words: str) -> None:
    progress: Any = SimpleNamespace(
        seconds=1.0, seconds_trained=1.0, steps=10, episodes=episodes, lost=0, mean_return=2.0, mean_of_latest=3.0
    )
    assert results_of(progress, 1, {}, goal=None, discarded=0)["return"] == words
