"""Search: an agent proposes its best actions, and simulation chooses among them.

Trying every action in a simulator is accurate and slow. An agent is fast, but it may rank the best action second or
third. So the agent narrows the choice to a few candidates, and only those are simulated. The environment says what a
candidate gains (`Simulates`); nothing here knows what that means.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from envfleet.errors import SettingsError

__all__ = ["RankingAgent", "SearchingAgent", "Simulates"]


@runtime_checkable
class Simulates(Protocol):
    """An environment that can simulate actions before one of them is taken."""

    def simulated_gains(self, actions: Sequence[int]) -> Any:
        """Return the expected gain of each action, one number each. The episode must stay as it is."""
        ...


class RankingAgent(Protocol):
    """An agent that can name its best actions."""

    def reset(self) -> None: ...

    def ranked(self, observation: Any, info: dict[str, Any], count: int) -> Sequence[int]:
        """Return up to `count` allowed actions, the best one first."""
        ...


class SearchingAgent:
    """Takes the action with the largest simulated gain among the agent's `candidates` best ones."""

    def __init__(self, agent: RankingAgent, gains: Callable[[Sequence[int]], Any], candidates: int) -> None:
        if candidates < 1:
            raise SettingsError(f"search is {candidates}, expected at least 1 candidate")
        self._agent, self._gains, self._candidates = agent, gains, candidates

    def reset(self) -> None:
        self._agent.reset()

    def __call__(self, observation: Any, info: dict[str, Any]) -> Any:
        proposed = self._agent.ranked(observation, info, self._candidates)
        return proposed[int(np.argmax(self._gains(proposed)))]  # the first of equal gains: the agent's favourite
