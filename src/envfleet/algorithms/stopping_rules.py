"""Checks of the settings that end a run before its budget is spent, and notices about them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from envfleet.wording import counted

if TYPE_CHECKING:
    from envfleet.algorithms.common_settings import TrainingSettings

__all__ = ["EVALUATIONS", "stopping_notices", "stopping_problems"]

EVALUATIONS = 5  # per budget, by default


def stopping_problems(settings: TrainingSettings) -> list[str]:
    """Return an endless duration, and conditions that need evaluations if there are none; one line each."""
    if settings.duration == math.inf:
        return ["duration is inf, expected a number of hours; leave it out for a run without a time limit"]
    if settings.eval_every != 0 or (settings.stop_score is None and settings.patience is None):
        return []
    name = "patience" if settings.stop_score is None else "stop_score"
    return [f"{name} looks at evaluations, but eval_every is 0: there are none; expected at least 1"]


def stopping_notices(settings: TrainingSettings) -> list[str]:
    """Return a notice if the patience is longer than the run. The first evaluation is always the best so far."""
    count = _evaluations(settings)
    if settings.patience is None or count is None or count > settings.patience:
        return []
    patience = f"patience {settings.patience} cannot end this run early"
    why = f"it has {counted(count, 'evaluation')}, and the first is always the best so far"
    return [f"{patience}: {why}; evaluate more often (--eval-every)"]


def _evaluations(settings: TrainingSettings) -> int | None:
    """The number of evaluations of a run; None if its length in steps is not known."""
    if settings.eval_every is None:
        return EVALUATIONS
    return max(1, settings.steps // settings.eval_every) if settings.steps and settings.eval_every else None
