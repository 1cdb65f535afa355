"""Policies: the contract that all kinds share, and the three kinds of Envfleet, each with its own networks.

Importing this package does not load torch; names that need it are imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from envfleet.policies.settings import PolicySettings

if TYPE_CHECKING:
    from envfleet.policies.description import describe_space, space_from
    from envfleet.policies.flat import FlatParameters
    from envfleet.policies.kinds import register_policy_kind
    from envfleet.policies.normalise import RewardScaler, RunningMoments
    from envfleet.policies.policy import Evaluated, Policy, build_policy
    from envfleet.policies.protocol import Acted, ActingPolicy, NumpyActed, NumpyPolicy, PolicyBuilder

_HOME_OF = {
    "Acted": "protocol",
    "ActingPolicy": "protocol",
    "Evaluated": "policy",
    "FlatParameters": "flat",
    "NumpyActed": "protocol",
    "NumpyPolicy": "protocol",
    "Policy": "policy",
    "PolicyBuilder": "protocol",
    "RewardScaler": "normalise",
    "RunningMoments": "normalise",
    "build_policy": "policy",
    "describe_space": "description",
    "register_policy_kind": "kinds",
    "space_from": "description",
}

__all__ = [
    "Acted",
    "ActingPolicy",
    "Evaluated",
    "FlatParameters",
    "NumpyActed",
    "NumpyPolicy",
    "Policy",
    "PolicyBuilder",
    "PolicySettings",
    "RewardScaler",
    "RunningMoments",
    "build_policy",
    "describe_space",
    "register_policy_kind",
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
