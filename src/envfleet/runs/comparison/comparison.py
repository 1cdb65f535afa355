"""Compares groups of runs: speed, returns, and their confidence."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from envfleet.confidence import bootstrap_interval, interquartile_mean, probability_of_improvement
from envfleet.errors import EnvfleetError, SettingsError
from envfleet.runs.comparison.run_metrics import RunMetrics
from envfleet.runs.folder import named_runs
from envfleet.runs.grouping import RunGroup, differing_settings, group_runs, run_names
from envfleet.runs.run import Run

__all__ = ["GroupMetrics", "RunComparison", "compare_runs"]

_SHARE_OF_BEST = 0.9  # share of the best return that counts as the score if none is given


@dataclass(frozen=True)
class GroupMetrics:
    """The runs of a group, and their combined metrics.

    Returns are interquartile means over seeds, speeds are means over runs, and a peak is the maximum.
    """

    label: str
    runs: tuple[RunMetrics, ...]

    @property
    def env(self) -> str:
        return self.runs[0].env

    @property
    def seeds(self) -> list[int | None]:
        return list(dict.fromkeys(run.seed for run in self.runs))

    @property
    def is_sequential(self) -> bool:
        return all(run.backend == "sequential" for run in self.runs)

    def mean(self, metric: Callable[[RunMetrics], float | None]) -> float | None:
        """Mean of a metric over the runs that have it."""
        values = [value for run in self.runs if (value := metric(run)) is not None]
        return fmean(values) if values else None

    def most(self, metric: Callable[[RunMetrics], float | None]) -> float | None:
        return max((value for run in self.runs if (value := metric(run)) is not None), default=None)

    def per_seed(self, metric: Callable[[RunMetrics], float | None]) -> list[float]:
        """One value per seed. Runs of the same seed are no further evidence, so they count as their mean."""
        values: dict[Any, list[float]] = {}
        for run in self.runs:
            if (value := metric(run)) is not None:
                values.setdefault(run.seed, []).append(value)
        return [fmean(each) for each in values.values()]

    def middle(self, metric: Callable[[RunMetrics], float | None]) -> float | None:
        """Interquartile mean over seeds."""
        values = self.per_seed(metric)
        return float(interquartile_mean(_one_task(values))) if values else None

    def interval(self, metric: Callable[[RunMetrics], float | None]) -> tuple[float, float] | None:
        """95 % interval of that mean; None with one seed, which says nothing about others."""
        values = self.per_seed(metric)
        return bootstrap_interval(interquartile_mean, _one_task(values)) if len(values) > 1 else None

    @property
    def steps_per_second(self) -> float:
        return fmean(run.steps_per_second for run in self.runs)

    @property
    def workers(self) -> int:
        return max(run.workers for run in self.runs)

    def to_score(self, score: float | None) -> tuple[int, float | None, float | None]:
        """Number of runs that reached the score, and the median of their steps and seconds.

        A run that did not reach it counts as infinite, so the median is None if half of the runs did not.
        """
        reached = [None if score is None else run.reached(score) for run in self.runs]
        steps, seconds = ([math.inf if each is None else float(each[place]) for each in reached] for place in (0, 1))
        return sum(each is not None for each in reached), _finite(np.median(steps)), _finite(np.median(seconds))


@dataclass(frozen=True)
class RunComparison:
    """The result of `envfleet compare`."""

    groups: tuple[GroupMetrics, ...]
    asked_score: float | None
    notes: tuple[str, ...] = ()  # about runs that are left out, unfinished or not comparable
    named: bool = False  # the user named the sequential and the parallel runs

    @property
    def runs(self) -> list[RunMetrics]:
        return [run for group in self.groups for run in group.runs]

    @property
    def envs(self) -> list[str]:
        return list(dict.fromkeys(group.env for group in self.groups))

    def reference(self, group: GroupMetrics) -> GroupMetrics | None:
        """Reference of a group's speed-up: the only sequential group of its environment, otherwise the first group.

        None if no other group has its environment.
        """
        alike = self.alike(group)
        if len(alike) < 2:
            return None
        sequential = [each for each in alike if each.is_sequential]
        return sequential[0] if len(sequential) == 1 and not self.named else alike[0]

    def alike(self, group: GroupMetrics) -> list[GroupMetrics]:
        """Groups of the same environment, whose returns can be compared."""
        return [each for each in self.groups if each.env == group.env]

    def speedup(self, group: GroupMetrics) -> float | None:
        reference = self.reference(group)
        return None if reference is None else group.steps_per_second / reference.steps_per_second

    def efficiency(self, group: GroupMetrics) -> float | None:
        """Speed-up per worker."""
        speedup = self.speedup(group)
        return None if speedup is None else speedup / group.workers

    def score(self, group: GroupMetrics) -> float | None:
        """The score to reach: the given one, or 90 % of the best return of any group in this environment."""
        if self.asked_score is not None:
            return self.asked_score
        bests = [each.middle(lambda run: run.best_return) for each in self.alike(group)]
        best = max((value for value in bests if value is not None), default=None)
        # For a negative best return, 90 % of it would be better than the best.
        return None if best is None else best - (1.0 - _SHARE_OF_BEST) * abs(best)

    def common_steps(self, group: GroupMetrics) -> int:
        """Steps that every run of this environment has made."""
        return min(run.steps for each in self.alike(group) for run in each.runs)

    def common_seconds(self, group: GroupMetrics) -> float:
        """Training time that every run of this environment has reached."""
        return min(run.seconds for each in self.alike(group) for run in each.runs)

    def improvement(self, group: GroupMetrics) -> tuple[float, tuple[float, float]] | None:
        """Probability that a run of the group ends better than one of the reference, with its 95 % interval.

        None for the reference itself, and if either has one seed.
        """
        reference = self.reference(group)
        if reference is None or reference is group:
            return None
        samples = [each.per_seed(lambda run: run.final_return) for each in (group, reference)]
        if min(map(len, samples)) < 2:
            return None
        ours, theirs = map(_one_task, samples)
        interval = bootstrap_interval(probability_of_improvement, ours, theirs)
        return float(probability_of_improvement(ours, theirs)), interval

    @property
    def differences(self) -> dict[str, list[Any]]:
        """Settings that differ between groups, with the value of each group."""
        return differing_settings([group.runs[0].settings for group in self.groups])

    def to_json(self) -> dict[str, Any]:
        """The content of comparison.json, without the checks."""
        return {
            "groups": [self._group_json(number) for number in range(len(self.groups))],
            "differences": self.differences,
            "notes": list(self.notes),
        }

    def _group_json(self, number: int) -> dict[str, Any]:
        group = self.groups[number]
        reference, score, improvement = self.reference(group), self.score(group), self.improvement(group)
        at_score, steps_to_score, seconds_to_score = group.to_score(score)
        steps, seconds = self.common_steps(group), self.common_seconds(group)
        speeds = [run.steps_per_second for run in group.runs]
        return {
            "label": group.label,
            "env": group.env,
            "settings": {name: values[number] for name, values in self.differences.items()},
            "backend": "/".join(dict.fromkeys(run.backend for run in group.runs)),
            "workers": group.workers,
            "seeds": group.seeds,
            "steps": group.mean(lambda run: run.steps),
            "episodes": group.mean(lambda run: run.episodes),
            "seconds": group.mean(lambda run: run.seconds),
            "updates": group.mean(lambda run: run.updates),
            "steps_per_second": group.steps_per_second,
            "steps_per_second_range": [min(speeds), max(speeds)],
            "episodes_per_second": group.mean(lambda run: run.episodes_per_second),
            "speedup": self.speedup(group),
            "speedup_against": None if reference is None else reference.label,
            "efficiency": self.efficiency(group),
            "cpu_percent": group.mean(lambda run: run.cpu_percent()),
            "cpu_percent_caller": group.mean(lambda run: run.cpu_percent("caller")),
            "cpu_percent_learner": group.mean(lambda run: run.cpu_percent("learner")),
            "cpu_percent_workers": group.mean(lambda run: run.cpu_percent("workers")),
            "cpu_percent_others": group.mean(lambda run: run.cpu_percent("others")),
            "workers_busy_percent": group.mean(lambda run: run.workers_busy_percent),
            "peak_memory_mb": group.most(lambda run: run.peak_memory_mb),
            "memory_covers": next((kind for run in group.runs if (kind := run.memory[0]) is not None), None),
            "time_shares": _mean_shares(group.runs),
            "final_return": group.middle(lambda run: run.final_return),
            "final_return_interval": group.interval(lambda run: run.final_return),
            "best_return": group.middle(lambda run: run.best_return),
            "final_evaluation": group.middle(lambda run: run.final_evaluation),
            "best_evaluation": group.middle(lambda run: run.best_evaluation),
            "score": score,
            "runs_at_score": at_score,
            "steps_to_score": steps_to_score,
            "seconds_to_score": seconds_to_score,
            "common_steps": steps,
            "return_at_common_steps": group.middle(lambda run: run.returns.at_step(steps)),
            "common_seconds": seconds,
            "return_at_common_seconds": group.middle(lambda run: run.returns.at_second(seconds)),
            "probability_of_improvement": None if improvement is None else improvement[0],
            "probability_of_improvement_interval": None if improvement is None else improvement[1],
            "runs": [_run_json(run) for run in group.runs],
        }


def compare_runs(
    paths: Sequence[str | Path] = (),
    *,
    sequential: Sequence[str | Path] = (),
    parallel: Sequence[str | Path] = (),
    score: float | None = None,
) -> RunComparison:
    """Compare runs grouped by their settings, or those of `sequential` with those of `parallel`.

    A path is a run or a folder of runs. A run that cannot be used is left out, and a note says why.
    """
    given = {"": list(paths)} if paths else {"sequential": list(sequential), "parallel": list(parallel)}
    notes: list[str] = []
    found = {label: _expanded(places, notes) for label, places in given.items()}
    names = run_names([path for places in found.values() for path in places])
    named_paths = iter(names)
    readable = {
        label: _readable([(path, next(named_paths)) for path in places], notes) for label, places in found.items()
    }
    if not any(readable.values()):
        count = len(names)
        raise SettingsError("\n".join([f"none of the {count} runs can be compared:", *notes]))
    if paths:
        groups = group_runs([run.run for run in readable[""]])
    else:
        groups = [RunGroup(label, tuple(run.run for run in runs)) for label, runs in readable.items() if runs]
    metrics = {run.run: run for runs in readable.values() for run in runs}
    compared = tuple(GroupMetrics(group.label, tuple(metrics[run] for run in group.runs)) for group in groups)
    notes += [note for group in compared for run in group.runs for note in _unfinished(run)]
    return RunComparison(compared, score, (*notes, *_remarks(compared, given)), named=not paths)


def _expanded(places: Iterable[str | Path], notes: list[str]) -> list[Path]:
    """Resolve the paths to runs. A folder of runs stands for all of them."""
    paths: dict[Path, Path] = {}
    for path in (path for place in places for path in named_runs(place)):
        if path.resolve() in paths:
            notes.append(f"{path} was given twice and counts once")
        paths.setdefault(path.resolve(), path)
    return list(paths.values())


def _readable(named: Iterable[tuple[Path, str]], notes: list[str]) -> list[RunMetrics]:
    runs = []
    for path, name in named:
        if not (path / "manifest.json").is_file():
            Run.load(path)  # raises for a wrong path, and suggests near ones
        try:
            runs.append(RunMetrics(Run.load(path), name))
        except (EnvfleetError, OSError, TypeError, ValueError) as error:  # the last two: a damaged manifest
            notes.append(f"{name} is left out: {str(error).partition(chr(10))[0]}")
    return runs


def _unfinished(run: RunMetrics) -> list[str]:
    """Notes on a run whose figures are not those of a whole run."""
    if run.summary.state == "running":
        return [f"{run.name} is still running: its figures are those so far ({run.steps:,} steps)"]
    cut = []
    if run.steps < run.saved_steps:
        cut.append(
            f"the metrics of {run.name} end at step {run.steps:,}, but its last checkpoint is of step "
            f"{run.saved_steps:,}: the end of metrics.jsonl is missing, and the figures are those up to there"
        )
    if run.summary.state == "stopped":
        of = f" of {run.summary.budget:,}" if run.summary.budget else ""
        return [f"{run.name} was stopped before its end, at step {max(run.steps, run.saved_steps):,}{of}", *cut]
    return cut


def _remarks(groups: Sequence[GroupMetrics], given: dict[str, list[str | Path]]) -> list[str]:
    """Notes on what cannot be compared."""
    remarks = []
    if len(groups) == 1:
        missing = [label for label in given if label and label != groups[0].label]
        why = f"no run of {missing[0]} can be used" if missing else "all runs have the same settings"
        remarks.append(f"there is nothing to compare with: {why}")
    envs = list(dict.fromkeys(group.env for group in groups))
    if len(envs) > 1:
        remarks.append(
            f"the runs are of different environments ({', '.join(envs)}): speed-ups and returns are compared only "
            "between groups of the same one"
        )
    for group in groups:
        within = differing_settings([run.settings for run in group.runs])
        if within:
            remarks.append(f"the runs of {group.label} differ in more than their seed: {', '.join(within)}")
        without = [run.name for run in group.runs if run.final_return is None]
        if without:
            remarks.append(f"no episode of {', '.join(without)} has ended, so there is no return to compare")
    return remarks


def _one_task(values: Sequence[float]) -> np.ndarray[Any, Any]:
    return np.array(values, dtype=float)[:, None]  # [run, task]


def _finite(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None


def _mean_shares(runs: Sequence[RunMetrics]) -> dict[str, float]:
    names = dict.fromkeys(name for run in runs for name in run.time_shares)
    return {name: fmean(run.time_shares[name] for run in runs if name in run.time_shares) for name in names}


def _run_json(run: RunMetrics) -> dict[str, Any]:
    return {
        "run": run.name,
        "path": str(run.run.folder.shown),
        "seed": run.seed,
        "state": run.summary.state,
        "steps": run.steps,
        "episodes": run.episodes,
        "seconds": run.seconds,
        "updates": run.updates,
        "steps_per_second": run.steps_per_second,
        "final_return": run.final_return,
        "best_return": run.best_return,
        "peak_memory_mb": run.peak_memory_mb,
    }
