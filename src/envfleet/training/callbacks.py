"""Callbacks: what users can do while a training runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from envfleet.rollout.arrays import Rollout
    from envfleet.runs.evaluation import Evaluation

__all__ = ["Callback", "Moment"]


@dataclass
class Moment:
    """Where the training is when a callback is called, and what it can ask for."""

    steps: int
    episodes: int
    mean_return: float  # of the last 100 episodes; NaN before the first
    metrics: dict[str, float]  # the figures of the last update; what a callback sets is logged with the next line
    stop: bool = False  # set it to end the training after this update
    _call: Callable[..., tuple[Any, ...]] | None = field(default=None, repr=False)

    def call_envs(self, name: str, *args: Any) -> tuple[Any, ...]:
        """What a method of every environment returns, e.g. one that changes its difficulty; or an attribute.

        No rollout is under way meanwhile: with schedule overlap it waits for the one that is being collected. So
        `on_update` is the place for it; in `on_rollout` and `on_episode` collecting and learning would not overlap.
        """
        assert self._call is not None, "a moment of a training knows its environments"
        return self._call(name, *args)


class Callback:
    """Override what you need; each is called in the learner's process, between rollouts."""

    def on_rollout(self, moment: Moment, rollout: Rollout) -> None:
        """A rollout was collected; its arrays are views that the next one overwrites."""

    def on_episode(self, moment: Moment, episode_return: float, length: int) -> None:
        """An episode ended in the last rollout."""

    def on_update(self, moment: Moment) -> None:
        """The policy has learned from the last rollout; `moment.metrics` has every figure, and takes your own."""

    def on_evaluation(self, moment: Moment, evaluation: Evaluation) -> None:
        """The policy was evaluated."""

    def on_end(self, moment: Moment) -> None:
        """The training is over."""
