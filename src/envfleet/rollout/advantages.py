"""Generalized advantage estimation, GAE (Schulman et al. 2016), per environment and episode.

For a step from state s to s' with reward r:

    delta = r + gamma * V(s') - V(s)               the TD error
    A     = delta + gamma * lambda * A(next step)  summed up to the end of the episode

V(s') is 0 if the episode terminated, and the value of the *final* observation if it was truncated. The last step of
the rollout bootstraps from the value after it. Nothing crosses the end of an episode or the border of an environment.

A step that never happened (`valid` is False: its worker died) gets no advantage. The chain ends before it: the previous
step bootstraps from the value of the state that it led to.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["generalized_advantages", "td_errors"]

Array = np.ndarray[Any, Any]


def td_errors(
    rewards: Array, values: Array, terminated: Array, truncated: Array, valid: Array, final_values: Array, gamma: float
) -> tuple[Array, Array]:
    """Return the TD errors `[time, env]`, 0 for steps that never happened, and whether the next row continues each."""
    following = np.where(truncated, final_values, values[1:])
    errors = rewards + gamma * following * ~terminated - values[:-1]
    errors *= valid
    goes_on = valid & ~(terminated | truncated)  # the next row belongs to the same episode ...
    goes_on[:-1] &= valid[1:]  # ... and happened
    return errors, goes_on


def generalized_advantages(
    rewards: Array,  # [time, env]
    values: Array,  # [time + 1, env]; the last row is the value after the last step
    terminated: Array,  # [time, env]
    truncated: Array,  # [time, env]
    valid: Array,  # [time, env]
    final_values: Array,  # [time, env]: used only where an episode was truncated
    *,
    gamma: float,
    lam: float,
) -> Array:
    """Return advantages `[time, env]` (float32); zero for steps that never happened."""
    errors, goes_on = td_errors(rewards, values, terminated, truncated, valid, final_values, gamma)
    factors = (gamma * lam) * goes_on.astype(np.float32)
    advantages = errors.astype(np.float32, copy=False)
    for t in range(len(rewards) - 2, -1, -1):
        advantages[t] += factors[t] * advantages[t + 1]
    return advantages
