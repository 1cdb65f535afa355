"""Checks of settings against the schedule of collecting and learning, and notices about the schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from envfleet.algorithms.common_settings import TrainingSettings

__all__ = ["schedule_notices", "schedule_problems"]


def schedule_problems(settings: TrainingSettings) -> list[str]:
    """Return settings that contradict the schedule, one line each."""
    found = []
    asynchronous = settings.schedule == "async"
    if asynchronous and "async" not in settings.schedules:  # unknown names are refused before
        found.append(
            f"schedule is {settings.schedule}, expected {' or '.join(settings.schedules)}: the learner of "
            f"{settings.algorithm or type(settings).__name__} does not support it"
        )
    if asynchronous and settings.acting == "central":
        found.append("acting is central, expected worker or auto: with schedule async, each worker acts by itself")
    for name in ("record_order", "replay_order"):
        if getattr(settings, name) and not asynchronous:
            found.append(f"{name} needs schedule async, but schedule is {settings.schedule}: its order is known")
    if settings.replay_order is not None and settings.duration is not None:
        found.append("replay_order and duration were both given, expected a budget in steps: a clock is not replayed")
    return found


def schedule_notices(settings: TrainingSettings) -> list[str]:
    """Return notices about the schedule for the user, one line each."""
    if settings.schedule != "async":
        return []
    if settings.replay_order is not None:
        return [f"schedule async: the order of {settings.replay_order} is replayed, one rollout after the other"]
    recorded = "order.jsonl records it for --replay-order" if settings.record_order else "--record-order records it"
    why = f"because the order in which workers finish shapes what is learned ({recorded})"
    resumed = "a resume continues exactly what was learned, but begins fresh episodes"
    return [f"schedule async: this run is not reproducible, {why}; {resumed}"]
