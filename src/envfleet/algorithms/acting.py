"""How an algorithm's policy is built wherever it is to act. Importing this loads no torch: workers do that early."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gymnasium import spaces

from envfleet.policies.settings import PolicySettings

if TYPE_CHECKING:
    from envfleet.algorithms.actor_critic import ActorCriticActor

__all__ = ["ActorCriticMaker"]


@dataclass(frozen=True)
class ActorCriticMaker:
    """Builds an actor-critic policy; its weights come later."""

    settings: PolicySettings
    record_values: bool  # where actor and critic share a network, the value costs almost nothing while acting

    def load(self) -> None:
        importlib.import_module("envfleet.algorithms.actor_critic")

    def __call__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> ActorCriticActor:
        from envfleet.algorithms.actor_critic import ActorCriticActor
        from envfleet.policies.policy import build_policy

        policy = build_policy(observation_space, action_space, self.settings, seed=0)
        return ActorCriticActor(policy, with_values=self.record_values and policy.values_when_acting)
