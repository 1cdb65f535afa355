"""Action distributions: sampling, log-probabilities and entropy.

Sampling takes noise as an argument and never uses a generator: the same network outputs and the same noise give the
same actions in every process. Each distribution defines the amount and kind of noise for one action.

Action masks (`[batch, mask_size]`, False or 0 forbids) set logits to -1e9: finite, so that nothing becomes NaN, and low
enough for a probability of exactly 0. A choice with all actions forbidden is treated as if all were allowed. Switches
may all be forbidden; then all stay off.
"""

from __future__ import annotations

from typing import Any

from gymnasium import spaces

from envfleet.errors import SettingsError
from envfleet.policies.distributions.base import Distribution, NumpySampler, Score
from envfleet.policies.distributions.discrete import Bernoulli, Categorical, MultiCategorical, forbid, forbid_in_numpy
from envfleet.policies.distributions.gaussian import Gaussian

__all__ = [
    "Bernoulli",
    "Categorical",
    "Distribution",
    "Gaussian",
    "MultiCategorical",
    "NumpySampler",
    "Score",
    "build_distribution",
    "forbid",
    "forbid_in_numpy",
]


def build_distribution(space: spaces.Space[Any], bounds: str, initial_log_std: float) -> Distribution:
    """Build the distribution for an action space."""
    if isinstance(space, spaces.Discrete):
        return Categorical(space)
    if isinstance(space, spaces.MultiDiscrete):
        return MultiCategorical(space)
    if isinstance(space, spaces.MultiBinary):
        return Bernoulli(space)
    if isinstance(space, spaces.Box):
        return Gaussian(space, bounds, initial_log_std)
    raise SettingsError(
        f"the action space is {space}, expected Box, Discrete, MultiDiscrete or MultiBinary",
        hint="use a wrapper that turns the actions into one of these, for example a flattened Box",
    )
