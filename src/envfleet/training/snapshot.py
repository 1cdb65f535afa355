"""Snapshots: everything a run needs to continue as if it had never been interrupted, and how to restore it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from envfleet.errors import ClusterLostError, EnvError, StateError, WorkerError, one_line_of
from envfleet.rollout.collectors import CentralCollector
from envfleet.seeding import derive_seed
from envfleet.training.assembly import Parts
from envfleet.training.exactness import Exactness

__all__ = ["begin_fresh_episodes", "restore_parts", "take_parts"]

# Arrays of the collector that outlive a rollout: memory and allowed actions of the running episodes.
_LIVE = ("carried", "allowed", "masked")
_GIVEN_UP = "the time was over in the middle of a rollout"
_NEVER_IDLE = "with the schedule async, workers are always in the middle of a rollout"
_FRESH = 0xF5E5  # separates the seeds of fresh episodes from the other streams of a run


def take_parts(
    parts: Parts, exactness: Exactness, progress: Callable[[int, int], None], *, given_up: bool = False
) -> dict[str, Any]:
    """Return the state of learner, simulators and schedule. The schedule must be settled.

    `progress` is called with the number of saved groups and their total. If the rollout was `given_up`, the simulators
    are in the middle of it and cannot be saved.
    """
    assert parts.schedule.idle
    arrays = parts.collector.arrays
    given_up = given_up or not parts.schedule.saves_simulators
    fleet, reason = (None, None) if given_up else _simulators(parts, exactness, progress)
    if given_up:
        reason = _GIVEN_UP if parts.schedule.saves_simulators else _NEVER_IDLE
    collected = parts.schedule.collected
    return {
        "learner": parts.learner.state(),
        "fleet": fleet,
        "fleet_reason": reason,
        "fleet_tried": exactness.tried,
        "schedule": parts.schedule.state(),
        "live": {name: arrays[name].copy() for name in _LIVE} if parts.schedule.saves_simulators else {},
        # With a lag, the collected rollout that has not been learned from yet.
        "rollout": None if collected is None else _unlearned(arrays, parts),
    }


def _simulators(
    parts: Parts, exactness: Exactness, progress: Callable[[int, int], None]
) -> tuple[dict[str, Any] | None, str | None]:
    """Return the state of the simulators, or the reason why they would not continue exactly."""
    if exactness.failed:
        return None, exactness.reason()
    reason: str | None
    hint: str | None = None
    try:
        state = parts.fleet.state(progress)
    except ClusterLostError:
        raise  # an earlier checkpoint has the simulators
    except WorkerError as error:
        # A worker that dies here costs its episodes, not the training: the next rollout restarts it.
        return None, one_line_of(error)
    except (EnvError, StateError) as error:
        reason, hint = one_line_of(error), error.hint
    else:
        reason = exactness.reason()
    if reason is None:
        return state, None
    exactness.announce(reason, hint)
    return None, reason


def restore_parts(parts: Parts, state: Mapping[str, Any], pieces: Mapping[str, Any]) -> None:
    """Restore everything, simulators included. Passes their errors on."""
    parts.fleet.restore(state["fleet"])
    parts.learner.restore(state["learner"], pieces)
    number, collected = state["schedule"]["number"], state["schedule"]["collected"]
    for name in _LIVE:
        parts.collector.arrays[name][...] = state["live"][name]
    if collected:
        buffer = number % parts.shape.buffers
        for name, array in parts.collector.arrays.items():
            if name in state["rollout"]:
                saved = state["rollout"][name]
                array[buffer][: len(saved)] = saved
            elif name.startswith("episode_numbers/"):  # log_info was different when it was saved
                array[buffer] = np.nan
    parts.schedule.resume(state["schedule"])


def begin_fresh_episodes(parts: Parts, state: Mapping[str, Any], pieces: Mapping[str, Any]) -> None:
    """Restore everything except the simulators, and start new episodes.

    Their seeds depend on the run's seed and progress. So the result does not depend on where the run resumes, and the
    episodes differ from those at its start.
    """
    parts.learner.restore(state["learner"], pieces)
    parts.learner.begin_fresh_episodes()
    fleet, collector, number = parts.fleet, parts.collector, state["schedule"]["number"]
    collector.arrays["allowed"][...] = True  # clear a mask of an earlier reset, in case this one gives none
    _, infos = fleet.reset(seed=[derive_seed(fleet.seed + i, _FRESH, number) >> 2 for i in range(fleet.num_envs)])
    if isinstance(collector, CentralCollector):
        collector.see_infos(infos)
    parts.schedule.resume({**state["schedule"], "collected": False})


def _unlearned(arrays: Mapping[str, Any], parts: Parts) -> dict[str, np.ndarray[Any, Any]]:
    """Copy the buffer of the next rollout."""
    index = parts.schedule.number % parts.shape.buffers
    own = {name: array[index] for name, array in arrays.items() if name not in _SHARED}
    finals = _finals_used(own)
    return {name: (array[:finals] if name.startswith("final") else array).copy() for name, array in own.items()}


_SHARED = ("weights", "progress", *_LIVE)


def _finals_used(own: Mapping[str, Any]) -> int:
    """Number of used rows of finals. Rows reserved for the worst case are not saved."""
    ended = own["truncated"] & ~own["terminated"] & own["valid"]
    return int(ended.sum(axis=0).max(initial=0))
