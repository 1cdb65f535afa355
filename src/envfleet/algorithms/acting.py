"""Builders of an algorithm's policy for acting. Importing this does not load torch; `load` does."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from envfleet.policies.q_settings import QSettings
from envfleet.policies.settings import PolicySettings

if TYPE_CHECKING:  # Gymnasium too: reading the settings, e.g. for --help, should be fast
    from gymnasium import spaces

    from envfleet.algorithms.policy_actor import PolicyActor

__all__ = ["ActorCriticMaker", "QMaker"]


@dataclass(frozen=True)
class ActorCriticMaker:
    """Builds an actor-critic policy for acting; its weights are loaded later."""

    settings: PolicySettings
    record_values: bool  # only if actor and critic share a network: then values are almost free while acting

    def load(self) -> None:
        importlib.import_module("envfleet.algorithms.policy_actor")

    def __call__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> PolicyActor:
        from envfleet.algorithms.policy_actor import PolicyActor
        from envfleet.policies.policy import build_policy

        policy = build_policy(observation_space, action_space, self.settings, seed=0)
        return PolicyActor(policy, with_values=self.record_values and policy.values_when_acting, with_log_probs=True)


@dataclass(frozen=True)
class QMaker:
    """Builds a Q-network for acting; its weights are loaded later."""

    settings: QSettings

    def load(self) -> None:
        importlib.import_module("envfleet.algorithms.policy_actor")

    def __call__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> PolicyActor:
        from envfleet.algorithms.policy_actor import PolicyActor
        from envfleet.policies.q_policy import build_q_policy

        policy = build_q_policy(observation_space, action_space, self.settings, seed=0)
        return PolicyActor(policy, with_values=False, with_log_probs=False)
