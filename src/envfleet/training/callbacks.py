"""Callbacks: what users can do while a training runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from envfleet.fleet.fleet import Fleet
    from envfleet.rollout.arrays import Rollout
    from envfleet.runs.evaluation import Evaluation

__all__ = ["Callback", "Moment"]


@dataclass
class Moment:
    """Where the training is when a callback is called, and what it can ask for."""

    steps: int
    episodes: int
    mean_return: float  # of the last 100 episodes; NaN before the first
    metrics: Mapping[str, float]
    stop: bool = False  # set it to end the training after this update
    env_calls: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)

    def call_envs(self, name: str, *args: Any) -> None:
        """Calls a method of every environment before its next rollout, e.g. to change its difficulty."""
        self.env_calls.append((name, args))


class Callback:
    """Override what you need; each is called in the learner's process, between rollouts."""

    def on_rollout(self, moment: Moment, rollout: Rollout) -> None:
        """A rollout was collected; its arrays are views that the next one overwrites."""

    def on_episode(self, moment: Moment, episode_return: float, length: int) -> None:
        """An episode ended in the last rollout."""

    def on_update(self, moment: Moment) -> None:
        """The policy has learned from the last rollout; `moment.metrics` has every figure."""

    def on_evaluation(self, moment: Moment, evaluation: Evaluation) -> None:
        """The policy was evaluated."""

    def on_end(self, moment: Moment) -> None:
        """The training is over."""


def apply_calls(fleet: Fleet, moment: Moment) -> None:
    """Carries out what callbacks asked of the environments; nothing is under way."""
    for name, args in moment.env_calls:
        fleet.call(name, *args)
    moment.env_calls.clear()
