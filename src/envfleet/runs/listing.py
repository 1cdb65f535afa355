"""The list of runs: a summary of each from its files."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from envfleet.errors import SettingsError
from envfleet.paths import expanded
from envfleet.runs.checkpoints import Checkpoints
from envfleet.runs.folder import RunFolder, run_paths
from envfleet.runs.lock import holder
from envfleet.runs.metrics import latest_metrics

__all__ = ["RunSummary", "runs_in", "summary_of"]

_LOG = logging.getLogger("envfleet")


@dataclass(frozen=True)
class RunSummary:
    """Summary of a run from its files."""

    path: Path
    env: str
    algorithm: str
    seed: int | None
    steps: int
    budget: int | None
    last_return: float | None
    best_evaluation: float | None
    state: Literal["running", "finished", "stopped"]
    age: float  # seconds since its last metrics


def runs_in(root: str | Path, *, now: Callable[[], float] = time.time) -> list[RunSummary]:
    """Runs under `root`, latest first. Logs a warning for a run whose files cannot be read."""
    summaries = []
    for path in run_paths(expanded(root)):
        try:
            summaries.append(summary_of(RunFolder.open(path), now=now))
        except (OSError, SettingsError, ValueError) as error:  # ValueError: an invalid path
            _LOG.warning("%s is left out: %s", path, str(error).partition("\n")[0])
    return sorted(summaries, key=lambda summary: summary.age)


def summary_of(run: RunFolder, *, now: Callable[[], float] = time.time) -> RunSummary:
    """Return the summary that `envfleet runs` lists."""
    manifest = run.read_manifest()
    budget = run.read_config().get("steps") if run.config.exists() else None
    steps, last_return, best = latest_metrics(run.metrics)
    touched = run.metrics if run.metrics.exists() else run.manifest
    return RunSummary(
        path=run.shown,
        env=str(manifest.get("env", "unknown")),
        algorithm=str(manifest.get("algorithm", "unknown")),
        seed=manifest.get("seed"),
        steps=steps,
        budget=budget if isinstance(budget, int) else None,
        last_return=last_return,
        best_evaluation=best,
        state=_state(run),
        age=max(0.0, now() - touched.stat().st_mtime),
    )


def _state(run: RunFolder) -> Literal["running", "finished", "stopped"]:
    if holder(run.path / ".lock") is not None:
        return "running"
    return "finished" if Checkpoints(run.checkpoints).finished else "stopped"
