"""Snapshots: everything a run needs to go on as if it had never been stopped, and how it is put back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from envfleet.errors import StateError, WorkerError
from envfleet.training.assembly import Parts

__all__ = ["restore_parts", "take_parts"]

# Arrays of the collector that outlive a rollout: memory and allowed actions of the episodes under way.
_LIVE = ("carried", "allowed", "masked")


def take_parts(parts: Parts) -> dict[str, Any]:
    """The state of learner, simulators and schedule; the schedule must be settled."""
    assert parts.schedule.idle
    arrays = parts.collector.arrays
    try:
        fleet, reason = parts.fleet.state(), None
    except (StateError, WorkerError) as error:
        # A worker that dies while it is asked costs its episodes, not the training: the next rollout restarts it.
        fleet, reason = None, str(error).splitlines()[0]
    collected = parts.schedule.collected
    return {
        "learner": parts.learner.state(),
        "fleet": fleet,
        "fleet_reason": reason,
        "schedule": {"number": parts.schedule.number, "collected": collected is not None},
        "live": {name: arrays[name].copy() for name in _LIVE},
        # With a lag, the rollout that was collected and not learned from yet.
        "rollout": None if collected is None else _unlearned(arrays, parts),
    }


def restore_parts(parts: Parts, state: Mapping[str, Any], pieces: Mapping[str, Any]) -> str | None:
    """Puts a state back; returns why the simulators start fresh, where they do."""
    parts.learner.restore(state["learner"], pieces)
    number, collected = state["schedule"]["number"], state["schedule"]["collected"]
    reason: str | None = state["fleet_reason"]
    if state["fleet"] is None:
        # Their episodes begin anew, so what was remembered of the old ones is of no use.
        parts.schedule.resume(number, collected=False)
        return reason
    parts.fleet.restore(state["fleet"])
    for name in _LIVE:
        parts.collector.arrays[name][...] = state["live"][name]
    parts.schedule.resume(number, collected=False)
    if collected:
        buffer = number % parts.shape.buffers
        for name, saved in state["rollout"].items():
            parts.collector.arrays[name][buffer][: len(saved)] = saved
        parts.schedule.resume(number, collected=True)
    return None


def _unlearned(arrays: Mapping[str, Any], parts: Parts) -> dict[str, np.ndarray[Any, Any]]:
    """The buffer that holds the next rollout."""
    index = parts.schedule.number % parts.shape.buffers
    own = {name: array[index] for name, array in arrays.items() if name not in _SHARED}
    finals = _finals_used(own)
    return {name: (array[:finals] if name.startswith("final") else array).copy() for name, array in own.items()}


_SHARED = ("weights", "progress", *_LIVE)


def _finals_used(own: Mapping[str, Any]) -> int:
    """Rows of finals that hold something; the room reserved for the worst case is not written to disk."""
    ended = own["truncated"] & ~own["terminated"] & own["valid"]
    return int(ended.sum(axis=0).max(initial=0))
