"""How an agent adapts to a task: the return of each episode of a trial, as a mean over tasks."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from envfleet.confidence import confidence_interval
from envfleet.runs.durable import write_whole, writing
from envfleet.runs.grouping import COLOURS

__all__ = ["Adaptation", "plot_adaptation"]

Interval = tuple[float, float] | None  # 95 % for a mean; None for one task


@dataclass(frozen=True)
class Adaptation:
    """Returns of trials, each of k episodes of one task."""

    episode_returns: tuple[float, ...]  # the mean of each episode of the trial
    episode_intervals: tuple[Interval, ...]
    trial_return: float  # the sum over the trial, which papers publish
    trial_interval: Interval
    tasks: int

    @classmethod
    def of(cls, returns: Sequence[Sequence[float]]) -> Adaptation | None:
        """Summarise the returns [trial, episode]; None if there are none."""
        if not returns:
            return None
        episodes, totals = np.array(returns).T, np.sum(returns, axis=1)
        return cls(
            episode_returns=tuple(float(np.mean(episode)) for episode in episodes),
            episode_intervals=tuple(confidence_interval(episode.tolist()) for episode in episodes),
            trial_return=float(np.mean(totals)),
            trial_interval=confidence_interval(totals.tolist()),
            tasks=len(returns),
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "episode_returns": list(self.episode_returns),
            "episode_intervals": [None if each is None else list(each) for each in self.episode_intervals],
            "trial_return": self.trial_return,
            "trial_interval": None if self.trial_interval is None else list(self.trial_interval),
            "tasks": self.tasks,
        }


def plot_adaptation(adaptation: Adaptation, output: Path, title: str) -> None:
    """Plot the return of each episode of a trial, with intervals."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), dpi=120, layout="constrained")  # without pyplot: spares the caller's plots
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    means = np.array(adaptation.episode_returns)
    numbers = np.arange(1, len(means) + 1)
    axes.plot(numbers, means, "o-", color=COLOURS[0])
    intervals = [each for each in adaptation.episode_intervals if each is not None]
    if intervals:
        low, high = np.array(intervals).T
        axes.errorbar(numbers, means, [means - low, high - means], color=COLOURS[0], capsize=4)
    axes.set_xlabel("episode of the trial")
    axes.set_ylabel(f"return, mean of {adaptation.tasks:,} tasks (95 %)")
    axes.set_xticks(numbers[:: max(1, len(numbers) // 10)])
    axes.set_title(title, wrap=True)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", metadata={"Software": None})
    with writing("the picture", output, "or free some space"):
        output.parent.mkdir(parents=True, exist_ok=True)
        write_whole(output, picture.getvalue())
