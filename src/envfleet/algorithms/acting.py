"""Builds an algorithm's policy where it acts. Importing this does not load torch; `load` does."""

from __future__ import annotations

import importlib
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

    def load(self) -> None:
        """Import torch and the modules that most policies need, while the environments are built."""
        for module in ("envfleet.algorithms.policy_actor", "envfleet.policies.policy"):
            importlib.import_module(module)

    def __call__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> PolicyActor:
        from envfleet.algorithms.policy_actor import PolicyActor

        return PolicyActor(self.build(observation_space, action_space, seed=0))
