"""Snapshots: everything a run needs to go on as if it had never been stopped, and how it is put back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from envfleet.conformance.exactness import one_line_of
from envfleet.errors import EnvError, StateError, WorkerError
from envfleet.rollout.collectors import CentralCollector
from envfleet.seeding import derive_seed
from envfleet.training.assembly import Parts
from envfleet.training.exactness import Exactness

__all__ = ["begin_fresh_episodes", "restore_parts", "take_parts"]

# Arrays of the collector that outlive a rollout: memory and allowed actions of the episodes under way.
_LIVE = ("carried", "allowed", "masked")
_GIVEN_UP = "the time was over in the middle of a rollout"
_FRESH = 0xF5E5  # names the seeds of fresh episodes among the streams of a run


def take_parts(
    parts: Parts, exactness: Exactness, progress: Callable[[int, int], None], *, given_up: bool = False
) -> dict[str, Any]:
    """The state of learner, simulators and schedule; the schedule must be settled.

    `progress` is told how many groups of environments of how many have been saved. Simulators whose rollout was
    `given_up` are somewhere in the middle of it, where nothing can go on from.
    """
    assert parts.schedule.idle
    arrays = parts.collector.arrays
    fleet, reason = (None, _GIVEN_UP) if given_up else _simulators(parts, exactness, progress)
    collected = parts.schedule.collected
    return {
        "learner": parts.learner.state(),
        "fleet": fleet,
        "fleet_reason": reason,
        "fleet_tried": exactness.tried,
        "schedule": {"number": parts.schedule.number, "collected": collected is not None},
        "live": {name: arrays[name].copy() for name in _LIVE},
        # With a lag, the rollout that was collected and not learned from yet.
        "rollout": None if collected is None else _unlearned(arrays, parts),
    }


def _simulators(
    parts: Parts, exactness: Exactness, progress: Callable[[int, int], None]
) -> tuple[dict[str, Any] | None, str | None]:
    """The state of the simulators, or why there is none from which they would continue exactly."""
    if exactness.failed:
        return None, exactness.reason()
    try:
        state = parts.fleet.state(progress)
    except WorkerError as error:
        # A worker that dies while it is asked costs its episodes, not the training: the next rollout restarts it.
        return None, one_line_of(error)
    except (EnvError, StateError) as error:
        reason: str | None = one_line_of(error)
    else:
        reason = exactness.reason()
    if reason is None:
        return state, None
    exactness.announce(reason)
    return None, reason


def restore_parts(parts: Parts, state: Mapping[str, Any], pieces: Mapping[str, Any]) -> None:
    """Puts everything back, the simulators too; raises what they raise."""
    parts.fleet.restore(state["fleet"])
    parts.learner.restore(state["learner"], pieces)
    number, collected = state["schedule"]["number"], state["schedule"]["collected"]
    for name in _LIVE:
        parts.collector.arrays[name][...] = state["live"][name]
    parts.schedule.resume(number, collected=False)
    if collected:
        buffer = number % parts.shape.buffers
        for name, array in parts.collector.arrays.items():
            if name in state["rollout"]:
                saved = state["rollout"][name]
                array[buffer][: len(saved)] = saved
            elif name.startswith("episode_numbers/"):  # log_info was another when it was saved
                array[buffer] = np.nan
        parts.schedule.resume(number, collected=True)


def begin_fresh_episodes(parts: Parts, state: Mapping[str, Any], pieces: Mapping[str, Any]) -> None:
    """Puts everything back but the simulators: what was known of their episodes is of no use.

    Their seeds depend on the seed of the run and on how far it is, so that the result is the same wherever it resumes,
    and the episodes are not those with which it began.
    """
    parts.learner.restore(state["learner"], pieces)
    parts.learner.begin_fresh_episodes()
    fleet, collector, number = parts.fleet, parts.collector, state["schedule"]["number"]
    collector.arrays["allowed"][...] = True  # of the reset before this one, a mask would stay if this one gives none
    _, infos = fleet.reset(seed=[derive_seed(fleet.seed + i, _FRESH, number) >> 2 for i in range(fleet.num_envs)])
    if isinstance(collector, CentralCollector):
        collector.see_infos(infos)
    parts.schedule.resume(number, collected=False)


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
