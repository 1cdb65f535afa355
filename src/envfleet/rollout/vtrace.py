"""V-trace (Espeholt et al. 2018): value targets and advantages for rollouts that an older policy collected.

With the probability ratio of each action, new policy to the one that acted, pi(a|s) / mu(a|s):

    rho   = min(rho_limit, ratio)
    c     = lambda * min(c_limit, ratio)
    delta = rho * (r + gamma * V(s') - V(s))
    v(s)  = V(s) + delta + gamma * c * (v(s') - V(s'))                    the value target
    A(s)  = r + gamma * (lambda * v(s') + (1 - lambda) * V(s')) - V(s)    the advantage

The limit of rho decides which policy the targets value (1: one between the two policies), that of c how far a
correction reaches back. `lambda` is the paper's remark 2. If the policy that acted is the new one, v - V and A are both
the generalized advantage of the same lambda.

The paper multiplies A by rho in its policy gradient. Here that factor is left out: the ratio in PPO's clipped loss
already corrects for the action of the step itself.

Ends of episodes, final observations and steps that never happened are handled as in `envfleet.rollout.advantages`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from envfleet.rollout.advantages import td_errors

__all__ = ["VTrace", "vtrace"]

Array = np.ndarray[Any, Any]


class VTrace(NamedTuple):
    """Float32 arrays `[time, env]`. For steps that never happened, the target is the value and the advantage is 0."""

    targets: Array
    advantages: Array


def vtrace(
    rewards: Array,  # [time, env]
    values: Array,  # [time + 1, env]; the last row is the value after the last step
    log_ratios: Array,  # [time, env]: log-probability of the action, new policy minus the one that acted
    terminated: Array,  # [time, env]
    truncated: Array,  # [time, env]
    valid: Array,  # [time, env]
    final_values: Array,  # [time, env]: used only where an episode was truncated
    *,
    gamma: float,
    lam: float,
    rho_limit: float = 1.0,
    c_limit: float = 1.0,
) -> VTrace:
    """Return the value targets and advantages of a rollout."""
    log_ratios = np.where(valid, log_ratios, 0.0)  # those of steps that never happened mean nothing
    ratios = np.exp(np.minimum(log_ratios, np.log(max(rho_limit, c_limit)) + 1.0))  # larger ones are limited anyway
    errors, goes_on = td_errors(rewards, values, terminated, truncated, valid, final_values, gamma)
    reach = (gamma * lam) * goes_on
    corrections = (np.minimum(rho_limit, ratios) * errors).astype(np.float32)  # v - V, summed up from the end
    advantages = errors.astype(np.float32)
    traces = (reach * np.minimum(c_limit, ratios)).astype(np.float32)
    for t in range(len(rewards) - 2, -1, -1):
        corrections[t] += traces[t] * corrections[t + 1]
    advantages[:-1] += reach[:-1].astype(np.float32) * corrections[1:]
    return VTrace(corrections + values[:-1].astype(np.float32, copy=False), advantages)
