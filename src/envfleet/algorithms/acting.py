"""Builds an algorithm's policy where it acts. Importing this does not load torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # reading the settings, e.g. for --help, should be fast
    from gymnasium import spaces

    from envfleet.algorithms.policy_actor import PolicyActor
    from envfleet.policies.protocol import BuildPolicy

__all__ = ["PolicyMaker"]


@dataclass(frozen=True)
class PolicyMaker:
    """Builds a policy of any kind for acting; its weights are loaded later."""

    build: BuildPolicy  # usually the method of the policy's settings

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules that most policies need, torch among them."""
        return ("envfleet.algorithms.policy_actor", "envfleet.policies.policy")

    def __call__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> PolicyActor:
        from envfleet.algorithms.policy_actor import PolicyActor

        return PolicyActor(self.build(observation_space, action_space, seed=0))
