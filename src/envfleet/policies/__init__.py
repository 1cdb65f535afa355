"""Neural networks: encoders, memory and action distributions, combined in a `Policy`.

Importing this package does not load torch; names that need it are imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from envfleet.policies.settings import PolicySettings

if TYPE_CHECKING:
    from envfleet.policies.description import describe_space, space_from
    from envfleet.policies.flat import FlatParameters
    from envfleet.policies.normalise import RewardScaler, RunningMoments
    from envfleet.policies.policy import Acted, Evaluated, Policy, build_policy

_HOME_OF = {
    "Acted": "policy",
    "Evaluated": "policy",
    "FlatParameters": "flat",
    "Policy": "policy",
    "RewardScaler": "normalise",
    "RunningMoments": "normalise",
    "build_policy": "policy",
    "describe_space": "description",
    "space_from": "description",
}

__all__ = [
    "Acted",
    "Evaluated",
    "FlatParameters",
    "Policy",
    "PolicySettings",
    "RewardScaler",
    "RunningMoments",
    "build_policy",
    "describe_space",
    "space_from",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'envfleet.policies' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"envfleet.policies.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
