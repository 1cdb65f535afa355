"""Callbacks: user code that is called during training."""

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
    """The state of the training when a callback is called, and the callback's way to act on it."""

    steps: int
    episodes: int
    mean_return: float  # of the last 100 episodes; NaN before the first
    metrics: dict[str, float]  # metrics of the last update; values that a callback sets are logged with the next line
    stop: bool = False  # set it to end training after this update
    _call: Callable[..., tuple[Any, ...]] | None = field(default=None, repr=False)

    def call_envs(self, name: str, *args: Any) -> tuple[Any, ...]:
        """Call a method of every environment, e.g. to change its difficulty, or get an attribute. Returns the results.

        Waits for a rollout in progress (schedule overlap). So call it in `on_update`; in `on_rollout` and `on_episode`
        it would keep collecting and learning from overlapping.
        """
        assert self._call is not None, "a moment of a training knows its environments"
        return self._call(name, *args)


class Callback:
    """Base class of callbacks. Override what you need. Called in the learner's process, between rollouts."""

    def on_rollout(self, moment: Moment, rollout: Rollout) -> None:
        """Called after a rollout was collected. Its arrays are views that the next rollout overwrites."""

    def on_episode(self, moment: Moment, episode_return: float, length: int) -> None:
        """Called for each episode that ended in the last rollout."""

    def on_update(self, moment: Moment) -> None:
        """Called after learning from a rollout. `moment.metrics` has all metrics; add your own to it."""

    def on_evaluation(self, moment: Moment, evaluation: Evaluation) -> None:
        """Called after an evaluation."""

    def on_end(self, moment: Moment) -> None:
        """Called when the training is over."""
