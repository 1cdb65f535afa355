"""Advantages: how much better each action was than its state promised, per environment and episode.

Generalized advantage estimation (Schulman et al. 2016). For a step from state s to s' with reward r:

    delta = r + gamma * V(s') - V(s)              what the step brought beyond the promise
    A     = delta + gamma * lambda * A(next step)  summed up to the end of the episode

V(s') is 0 where the episode terminated; the value of the *final* observation where it was truncated; the
value at the rollout's edge for its last step. Nothing crosses an episode's end or an environment.

A step that never happened (`valid` is False: its worker died) gets no advantage, and the chain before it
ends there: the step before is bootstrapped with the value of the state it had led to.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["generalized_advantages"]

Array = np.ndarray[Any, Any]


def generalized_advantages(
    rewards: Array,  # [time, env]
    values: Array,  # [time + 1, env]; the last row is the value at the rollout's edge
    terminated: Array,  # [time, env]
    truncated: Array,  # [time, env]
    valid: Array,  # [time, env]
    final_values: Array,  # [time, env]: read only where an episode was truncated
    *,
    gamma: float,
    lam: float,
) -> Array:
    """Advantages `[time, env]` (float32); zero where a step never happened."""
    following = np.where(truncated, final_values, values[1:])
    deltas = rewards + gamma * following * ~terminated - values[:-1]
    deltas *= valid
    goes_on = valid & ~(terminated | truncated)  # the next row belongs to the same episode ...
    goes_on[:-1] &= valid[1:]  # ... and happened
    factors = (gamma * lam) * goes_on.astype(np.float32)
    advantages = deltas.astype(np.float32, copy=False)
    for t in range(len(rewards) - 2, -1, -1):
        advantages[t] += factors[t] * advantages[t + 1]
    return advantages
