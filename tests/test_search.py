"""An agent proposes, simulation chooses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from envfleet.errors import SettingsError
from envfleet.search import SearchingAgent


class Proposes:
    """Ranks the numbers from `first` on."""

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


def test_no_candidates() -> None:
    with pytest.raises(SettingsError, match="search is 0, expected at least 1"):
        SearchingAgent(Proposes(), lambda actions: [], 0)
