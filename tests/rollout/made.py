"""Synthetic rollouts."""

from __future__ import annotations

from typing import Any

import numpy as np

from envfleet.rollout.arrays import Rollout
from envfleet.rollout.replay import Experience, Replay

__all__ = ["rollout_of", "transitions_at"]

Array = np.ndarray[Any, Any]


def rollout_of(
    observations: Array, finals: Array, actions: Array, masks: Array | None = None, **steps: Array
) -> Rollout:
    """Return a rollout with one observation leaf; `steps` are rewards and flags [time, env]."""
    time, envs = actions.shape[:2]
    return Rollout(
        number=0,
        observations={"": observations},
        finals={"": finals},
        columns={"actions": actions},
        masks=masks,
        memory=np.zeros((2, envs, 0), np.float32),
        final_memory=np.zeros((time, envs, 0), np.float32),
        episode_returns=np.zeros((time, envs)),
        episode_lengths=np.zeros((time, envs), np.int64),
        seconds=np.zeros((1, 2)),
        **steps,
    )


def transitions_at(replay: Replay, entries: Array, *, steps: int, gamma: float) -> Experience:
    """Return the n-step transitions that begin at these entries, as one batch."""
    (found,) = replay.take_batches(entries[None], steps=steps, gamma=gamma)
    return found
