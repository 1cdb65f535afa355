"""How an agent adapts to a task: the return of each episode of a trial, as a mean over tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from envfleet.confidence import confidence_interval

__all__ = ["Adaptation", "Interval"]

Interval = tuple[float, float] | None  # 95 % for a mean; None for one value


@dataclass(frozen=True)
class Adaptation:
    """Returns of trials, each of k episodes of one task, by one run or by several that played the same tasks."""

    episode_returns: tuple[float, ...]  # the mean of each episode of the trial
    episode_intervals: tuple[Interval, ...]  # over tasks
    trial_return: float  # the sum over the trial, which papers publish
    trial_interval: Interval
    tasks: int  # distinct ones; fewer than trials if some came up again
    trials: tuple[tuple[float, ...], ...]  # [trial, episode]
    # Of several runs, over their means, which says how much the seed of the training matters.
    episode_intervals_of_runs: tuple[Interval, ...] = ()
    trial_interval_of_runs: Interval = None

    @classmethod
    def of(
        cls, returns: Sequence[Sequence[float]], tasks: Sequence[str] = (), *, join: bool = False
    ) -> Adaptation | None:
        """Summarise the returns [trial, episode]; None if there are none.

        `tasks` are those of the trials; by default each has another. `join` replaces the trials of a task by their
        mean, so that intervals count each task once.
        """
        if not returns:
            return None
        names = list(tasks) if len(tasks) == len(returns) else list(map(str, range(len(returns))))
        if join:
            by_task: dict[str, list[Sequence[float]]] = {}
            for name, trial in zip(names, returns, strict=True):
                by_task.setdefault(name, []).append(trial)
            names, returns = list(by_task), [np.mean(trials, axis=0).tolist() for trials in by_task.values()]
        episodes, totals = np.array(returns).T, np.sum(returns, axis=1)
        return cls(
            episode_returns=tuple(float(np.mean(episode)) for episode in episodes),
            episode_intervals=tuple(confidence_interval(episode.tolist()) for episode in episodes),
            trial_return=float(np.mean(totals)),
            trial_interval=confidence_interval(totals.tolist()),
            tasks=len(set(names)),
            trials=tuple(tuple(map(float, trial)) for trial in returns),
        )

    @classmethod
    def of_runs(cls, runs: Sequence[Adaptation]) -> Adaptation:
        """Summarise several runs. Intervals over tasks are of the mean over runs, if all played the same tasks."""
        if len(runs) == 1:
            return runs[0]
        same = len({len(run.trials) for run in runs}) == 1
        trials = np.mean([run.trials for run in runs], axis=0) if same else np.concatenate([run.trials for run in runs])
        whole = cls.of(trials.tolist())
        assert whole is not None
        means = np.array([run.episode_returns for run in runs])  # [run, episode]
        return cls(
            episode_returns=tuple(means.mean(axis=0).tolist()),
            episode_intervals=whole.episode_intervals,
            trial_return=float(means.sum(axis=1).mean()),
            trial_interval=whole.trial_interval,
            tasks=runs[0].tasks,
            trials=whole.trials,
            episode_intervals_of_runs=tuple(confidence_interval(episode.tolist()) for episode in means.T),
            trial_interval_of_runs=confidence_interval(means.sum(axis=1).tolist()),
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON."""
        plain = {
            "episode_returns": list(self.episode_returns),
            "episode_intervals": [_plain(each) for each in self.episode_intervals],
            "trial_return": self.trial_return,
            "trial_interval": _plain(self.trial_interval),
            "tasks": self.tasks,
        }
        if self.episode_intervals_of_runs:
            plain["episode_intervals_of_runs"] = [_plain(each) for each in self.episode_intervals_of_runs]
            plain["trial_interval_of_runs"] = _plain(self.trial_interval_of_runs)
        return plain


def _plain(interval: Interval) -> list[float] | None:
    return None if interval is None else list(interval)
