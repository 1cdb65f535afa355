"""How an algorithm's policy is built wherever it is to act. Importing this loads no torch: workers do that early."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from envfleet.policies.q_settings import QSettings
from envfleet.policies.settings import PolicySettings

if TYPE_CHECKING:  # Gymnasium too: the settings are read before anything is built, for help among others
    from gymnasium import spaces

    from envfleet.algorithms.policy_actor import PolicyActor

__all__ = ["ActorCriticMaker", "QMaker"]


@dataclass(frozen=True)
class ActorCriticMaker:
    """Builds an actor-critic policy; its weights come later."""

    settings: PolicySettings
    record_values: bool  # where actor and critic share a network, the value costs almost nothing while acting

    def load(self) -> None:
        importlib.import_module("envfleet.algorithms.policy_actor")

    def __call__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> PolicyActor:
        from envfleet.algorithms.policy_actor import PolicyActor
        from envfleet.policies.policy import build_policy

        policy = build_policy(observation_space, action_space, self.settings, seed=0)
        return PolicyActor(policy, with_values=self.record_values and policy.values_when_acting, with_log_probs=True)


@dataclass(frozen=True)
class QMaker:
    """Builds a Q-network that acts."""

    settings: QSettings

    def load(self) -> None:
        importlib.import_module("envfleet.algorithms.policy_actor")

    def __call__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> PolicyActor:
        from envfleet.algorithms.policy_actor import PolicyActor
        from envfleet.policies.q_policy import build_q_policy

        policy = build_q_policy(observation_space, action_space, self.settings, seed=0)
        return PolicyActor(policy, with_values=False, with_log_probs=False)
