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
    """Takes the action with the largest simulated gain among the agent's `candidates` best ones.

    An action is simulated when it is first proposed in an episode. Later it is simulated again only if it is one of the
    `FAVOURITES` that the agent ranks first, or of the `PROMISING` with the largest gains when last simulated. So up to
    16 candidates are all simulated. With more, the result can differ from simulating all of them, because an action may
    gain more after others were taken.
    """

    FAVOURITES = PROMISING = 8

    def __init__(self, agent: RankingAgent, gains: Callable[[Sequence[int]], Any], candidates: int) -> None:
        if candidates < 1:
            raise SettingsError(f"search is {candidates}, expected at least 1 candidate")
        self._agent, self._gains, self._candidates = agent, gains, candidates
        self._last_gains: dict[int, float] = {}  # of this episode

    def reset(self) -> None:
        self._agent.reset()
        self._last_gains.clear()

    def __call__(self, observation: Any, info: dict[str, Any]) -> Any:
        simulated = self._worth_simulating(self._agent.ranked(observation, info, self._candidates))
        gains = self._gains(simulated)
        self._last_gains |= zip(simulated, gains, strict=True)
        return simulated[int(np.argmax(gains))]  # the first of equal gains: the agent's favourite

    def _worth_simulating(self, proposed: Sequence[int]) -> list[int]:
        """The proposed actions to simulate now, in the agent's order."""
        seen = [action for action in proposed[self.FAVOURITES :] if action in self._last_gains]
        seen.sort(key=lambda action: -self._last_gains[action])  # stable: the agent's order if gains are equal
        left_out = set(seen[self.PROMISING :])
        return [action for action in proposed if action not in left_out]
