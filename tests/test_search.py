"""An agent proposes, simulation chooses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from envfleet.errors import SettingsError
from envfleet.search import SearchingAgent


class Proposes:
    """Ranks the numbers from the observation on."""

    def __init__(self) -> None:
        self.resets = 0

    def reset(self) -> None:
        self.resets += 1

    def ranked(self, observation: Any, info: dict[str, Any], count: int) -> Sequence[int]:
        return range(observation, observation + min(count, info["allowed"]))


def test_the_largest_gain_among_the_candidates_wins() -> None:
    asked = []

    def gains(actions: Sequence[int]) -> list[float]:
        asked.append(list(actions))
        return [{3: 1.0, 4: 5.0, 5: 5.0, 6: 9.0}[action] for action in actions]

    inner = Proposes()
    agent = SearchingAgent(inner, gains, 3)
    agent.reset()
    assert agent(3, {"allowed": 9}) == 4  # 6 is not among the candidates, and 4 was ranked before 5
    assert agent(3, {"allowed": 1}) == 3
    assert asked == [[3, 4, 5], [3]] and inner.resets == 1


def test_known_actions_are_simulated_again_if_they_are_favourites_or_promising() -> None:
    asked: list[list[int]] = []

    def gains(actions: Sequence[int]) -> list[float]:
        asked.append(list(actions))
        return [float(action % 10) for action in actions]

    agent = SearchingAgent(Proposes(), gains, 30)
    agent.reset()
    assert agent(0, {"allowed": 20}) == 9
    # 1 to 8 are favourites, 20 and 21 are new. Of the others, 10, 11 and 12 have the smallest gains.
    assert agent(1, {"allowed": 21}) == 9
    assert asked[0] == list(range(20))
    assert asked[1] == [*range(1, 10), *range(13, 22)]
    agent.reset()
    agent(1, {"allowed": 21})
    assert asked[2] == list(range(1, 22))  # a new episode


@pytest.mark.parametrize("seed", range(5))
def test_up_to_16_candidates_are_all_simulated(seed: int) -> None:
    """Against brute force: choose sets that cover the most weight, so that gains fall as more is covered."""
    generator = np.random.default_rng(seed)
    covers, weights = generator.random((40, 60)) < 0.15, generator.integers(1, 5, 60)
    order = generator.permutation(40)
    covered = np.zeros(60, np.bool_)

    class Ranks(Proposes):
        def ranked(self, observation: Any, info: dict[str, Any], count: int) -> list[int]:
            best: list[int] = np.roll(order, observation)[:count].tolist()
            return best

    def gains(actions: Sequence[int]) -> Any:
        return (covers[list(actions)] & ~covered) @ weights

    agent, few = SearchingAgent(Ranks(), gains, 16), 0
    for step in range(12):
        candidates = np.roll(order, step)[:16]
        best = int(candidates[np.argmax(gains(candidates))])
        assert agent(step, {}) == best
        covered |= covers[best]
        few += int(gains([best])[0] == 0)
    assert few == 12 and covered.sum() > 40


def test_no_candidates() -> None:
    with pytest.raises(SettingsError, match="search is 0, expected at least 1"):
        SearchingAgent(Proposes(), lambda actions: [], 0)
