"""The metrics of one run, as a comparison needs them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from envfleet.errors import SettingsError
from envfleet.runs.checkpoints import Checkpoints
from envfleet.runs.metrics import EPISODES, EVALUATION, RETURN, SHARES, SPEED, elapsed_seconds
from envfleet.runs.run import Run

__all__ = ["ALL_PROCESSES", "WORKERS_ONLY", "RunMetrics", "Series"]

Array = np.ndarray[Any, Any]

# The processes that a memory metric covers.
ALL_PROCESSES, WORKERS_ONLY = "all processes", "the workers only"
_WORKER = re.compile(r"fleet/worker_(\d+)/(?:busy_share|memory_mb)")
_WINDOW = 100  # episodes averaged in a recorded return, once there are enough
_PAUSE = 1.0  # seconds; a shorter gap between two updates is only the time to write a row


class Series:
    """A metric over a run: steps, seconds of training, values."""

    def __init__(self, steps: Array, seconds: Array, values: Array) -> None:
        self.steps, self.seconds, self.values = steps, seconds, values

    def __len__(self) -> int:
        return len(self.values)

    def at_step(self, step: float) -> float | None:
        """The last value up to `step`."""
        return self._at(self.steps, step)

    def at_second(self, second: float) -> float | None:
        return self._at(self.seconds, second)

    def _at(self, places: Array, place: float) -> float | None:
        # Summed seconds differ in their last digits.
        index = int(np.searchsorted(places, place * (1 + 1e-9), side="right")) - 1
        return float(self.values[index]) if index >= 0 else None

    def kept(self, mask: Array) -> Series:
        return Series(self.steps[mask], self.seconds[mask], self.values[mask])


class RunMetrics:
    """The metrics in a run's files. Raises a SettingsError if there is no update yet."""

    def __init__(self, run: Run, name: str) -> None:
        self.run, self.name = run, name
        self.manifest, self.settings, self.summary = run.manifest, run.settings, run.summary
        self.rows = run.metrics
        self._elapsed = elapsed_seconds(self.rows)
        if not self._elapsed or self._elapsed[-1] <= 0:
            raise SettingsError(f"{name} has no update in its metrics yet", hint="train it for longer")

    # --- identity

    @property
    def env(self) -> str:
        """The environment as the user gave it: the manifest's name of `one:make` and `two:make` is the same."""
        return str(self.settings.get("env") or self.summary.env)

    @property
    def seed(self) -> int | None:
        return self.summary.seed

    @property
    def backend(self) -> str:
        """The backend used: the recorded choice if there is one, otherwise the setting."""
        from envfleet.fleet.hosting import BACKENDS

        given = str(self.settings.get("backend", "auto"))
        return str(self._placement.get("backend") or BACKENDS.get(given, given))

    @property
    def workers(self) -> int:
        """Number of workers that stepped the environments."""
        recorded = self._placement.get("workers")
        seen = {match[1] for row in self.rows for name in row if (match := _WORKER.fullmatch(name))}
        if self.backend == "sequential":
            return 1
        return int(recorded or len(seen) or self.settings.get("workers") or 1)

    @property
    def _placement(self) -> dict[str, Any]:
        placement = self.manifest.get("placement")
        return placement if isinstance(placement, dict) else {}

    # --- progress and speed

    @cached_property
    def steps(self) -> int:
        return max(int(row["step"]) for row in self.rows if SPEED in row)

    @property
    def seconds(self) -> float:
        """Seconds of training, without set-up, random play and the time between a kill and a resume."""
        return self._elapsed[-1]

    @cached_property
    def episodes(self) -> int:
        return int(max((value for value in self.series(EPISODES).values), default=0))

    @property
    def updates(self) -> int | None:
        """Number of gradient steps."""
        return _last_whole(self.series("train/n_updates"))

    @property
    def steps_per_second(self) -> float:
        return self.steps / self.seconds

    @property
    def episodes_per_second(self) -> float:
        return self.episodes / self.seconds

    @cached_property
    def time_shares(self) -> dict[str, float]:
        """Shares of the training time by activity."""
        shares = {name: self._share(f"time/{name}") for name in SHARES}
        return {name: share for name, share in shares.items() if share is not None}

    def _share(self, name: str) -> float | None:
        spent = np.diff([0.0, *self._elapsed])
        values = np.array([row.get(name, math.nan) for row in self.rows], dtype=float)
        there = np.isfinite(values) & (spent > 0)
        return float(np.average(values[there], weights=spent[there])) if there.any() else None

    @cached_property
    def throughput(self) -> Series:
        """Steps and seconds at each update. The values are the steps again."""
        updates = [(row["step"], second) for row, second in zip(self.rows, self._elapsed, strict=True) if SPEED in row]
        steps, seconds = (np.array([0, *column], dtype=float) for column in zip(*updates, strict=True))
        return Series(steps, seconds, steps)

    # --- learning results

    @cached_property
    def returns(self) -> Series:
        return self.series(RETURN)

    @cached_property
    def settled_returns(self) -> Series:
        """Returns averaged over enough episodes to count as a best return or a score.

        The first returns of a run average only a few episodes, and one lucky episode is not a score. Requires a full
        window, or half of the episodes if the run has fewer than two windows.
        """
        needed = min(_WINDOW, self.episodes / 2)
        episodes = self._series(
            lambda row: row.get(EPISODES, math.nan) if math.isfinite(_of(row, RETURN)) else math.nan
        )
        if len(episodes) != len(self.returns):
            return self.returns
        return self.returns.kept(episodes.values >= needed)

    @property
    def final_return(self) -> float | None:
        return float(self.returns.values[-1]) if len(self.returns) else None

    @property
    def best_return(self) -> float | None:
        return float(self.settled_returns.values.max()) if len(self.settled_returns) else None

    @property
    def final_evaluation(self) -> float | None:
        evaluations = self.series(EVALUATION).values
        return float(evaluations[-1]) if len(evaluations) else None

    @property
    def best_evaluation(self) -> float | None:
        return self.summary.best_evaluation

    def reached(self, score: float) -> tuple[int, float] | None:
        """Steps and seconds until the return first reached `score`."""
        returns = self.settled_returns
        there = np.flatnonzero(returns.values >= score)
        return (int(returns.steps[there[0]]), float(returns.seconds[there[0]])) if len(there) else None

    # --- machine load

    @cached_property
    def memory(self) -> tuple[str | None, Series]:
        """The processes covered, and MiB over time. Older runs recorded only the workers."""
        recorded = self.series("system/memory_mb")
        if len(recorded):
            return ALL_PROCESSES, recorded
        # Only process workers have separate memory; all others share the caller's process.
        apart = self.backend == "processes"
        of_workers = self._series(lambda row: _of_workers(row, "memory_mb", sum if apart else max))
        return (WORKERS_ONLY if apart else ALL_PROCESSES) if len(of_workers) else None, of_workers

    @property
    def peak_memory_mb(self) -> float | None:
        values = self.memory[1].values
        return float(values.max()) if len(values) else None

    @cached_property
    def cpu(self) -> Series:
        """CPU use of all processes together, in percent of one core."""
        return self.series("system/cpu_percent")

    def cpu_percent(self, of: str | None = None) -> float | None:
        """Mean CPU use in percent of one core: of all processes, or `of` the caller, learner, workers or others.

        Others are processes that do not belong to the run.
        """
        samples = self.series("system/cpu_percent" if of is None else f"system/cpu_percent_{of}")
        # A sample covers the time since the previous one; the first one is mostly set-up.
        spans = np.diff(samples.seconds, prepend=0.0)
        return float(np.average(samples.values, weights=spans)) if spans.sum() > 0 else None

    @property
    def workers_busy_percent(self) -> float | None:
        """Mean busy time of the workers, in percent of one core, as measured by the fleet."""
        busy = self._series(lambda row: _of_workers(row, "busy_share", sum)).values
        return 100.0 * float(busy.mean()) if len(busy) else None

    @cached_property
    def intervals(self) -> list[tuple[float, float]]:
        """Wall-clock starts and ends of training, without the time between a stop and a resume."""
        found: list[tuple[float, float]] = []
        spent = np.diff([0.0, *self._elapsed])
        updates = [(_of(row, "time"), own) for row, own in zip(self.rows, spent, strict=True) if own > 0]
        for begin, end in sorted((time - own, time) for time, own in updates if math.isfinite(time)):
            if found and begin <= found[-1][1] + _PAUSE:
                found[-1] = (found[-1][0], max(found[-1][1], end))
            else:
                found.append((begin, end))
        return found

    def series(self, name: str) -> Series:
        """The series of a metric."""
        return self._series(lambda row: _of(row, name))

    def _series(self, value_of: Callable[[dict[str, Any]], float]) -> Series:
        found = [
            (row["step"], second, value)
            for row, second in zip(self.rows, self._elapsed, strict=True)
            if math.isfinite(value := value_of(row))
        ]
        columns = zip(*found, strict=True) if found else ((), (), ())
        return Series(*(np.array(column, dtype=float) for column in columns))

    # --- weights

    @property
    def saved_steps(self) -> int:
        """Steps of the last checkpoint, 0 without one. A whole metrics file reaches it."""
        return Checkpoints(self.run.folder.checkpoints).step_of("last") or 0

    def weights(self) -> dict[int, Path]:
        """The weights file of each checkpoint, by step."""
        stored = Checkpoints(self.run.folder.checkpoints)
        files = {step: stored.folder / f"step-{step}" / "policy.safetensors" for step in stored.steps()}
        return {step: file for step, file in files.items() if file.is_file()}


def _of(row: dict[str, Any], name: str) -> float:
    return float(row.get(name, math.nan))


def _of_workers(row: dict[str, Any], what: str, together: Callable[[list[float]], float]) -> float:
    values = [value for name, value in row.items() if name.endswith(f"/{what}") and _WORKER.fullmatch(name)]
    return float(together(values)) if values else math.nan


def _last_whole(series: Series) -> int | None:
    return int(series.values[-1]) if len(series) else None
