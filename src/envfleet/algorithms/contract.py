"""The contract between training and an algorithm's settings class. Importing this does not load torch.

`envfleet.algorithms.learner` explains the whole contract and has its other half, the learner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from envfleet.algorithms.acting import PolicyMaker
from envfleet.settings import Settings
from envfleet.settings.presets import Preset

if TYPE_CHECKING:
    from envfleet.algorithms.env_facts import EnvFacts
    from envfleet.algorithms.learner import Learner
    from envfleet.policies.protocol import ActingPolicy, PolicyBuilder
    from envfleet.rollout.acting import ActorMaker

__all__ = ["AlgorithmContract"]


@dataclass(frozen=True, kw_only=True)
class AlgorithmContract(Settings):
    """The methods that training calls on an algorithm's settings.

    Those with a body suit an algorithm that needs nothing special.
    """

    algorithm: ClassVar[str] = ""  # its name in commands, files and run folders
    schedules: ClassVar[tuple[str, ...]] = ("sync", "overlap")  # those that its learner supports
    off_policy: ClassVar[bool] = False  # it learns from a replay buffer, so with async no rollout is too old

    # --- rollouts, policy and learner

    @property
    def rollout_length(self) -> int:
        """Steps of each environment per rollout."""
        raise NotImplementedError

    @property
    def piece_length(self) -> int:
        """Steps between two stored memories (recurrent states)."""
        return self.rollout_length

    def policy_settings(self) -> PolicyBuilder:
        """Return the settings of the policy: plain data that build it and that its checkpoint records."""
        raise NotImplementedError

    def build_policy(self, observation_space: Any, action_space: Any, *, seed: int) -> ActingPolicy:
        """Build a new policy; raise SettingsError if the algorithm does not support a space. Imports torch."""
        return self.policy_settings().build(observation_space, action_space, seed=seed)

    def build_learner(
        self, observation_space: Any, action_space: Any, *, n_envs: int, seed: int, device: Any
    ) -> Learner:
        """Build the learner with a new policy. Imports torch."""
        raise NotImplementedError

    def actor_maker(self, lag: int) -> ActorMaker:
        """Return the function that builds the policy where it acts; rollouts use weights `lag` updates old."""
        return PolicyMaker(self.policy_settings().build)

    def family_preset(self, env: EnvFacts) -> Preset:
        """Return the preset for the environment's family; by default the one that the environment declares."""
        return env.own_preset(self.algorithm) or Preset("defaults", {})

    def named_presets(self) -> Mapping[str, Callable[[], Preset]]:
        """Return presets of the algorithm by name, for these settings. They replace those that all algorithms share."""
        return {}

    def needed_wrappers(self, env: EnvFacts) -> Mapping[str, str]:
        """Return the names of wrappers that these settings need and the environment lacks, with the reason of each.

        They become the outermost ones, are recorded in `wrappers`, and the user gets a notice with the reason.
        """
        return {}

    def adapted(self, env: EnvFacts) -> Self:
        """Return a copy that fits the environment in settings that the user did not give."""
        return self

    # --- run folders and files

    @classmethod
    def recorded_name(cls) -> str:
        """Name of the algorithm in a run: `ppo`, or `module:Class` if it is not part of Envfleet."""
        outside = cls.__module__.partition(".")[0] != __name__.partition(".")[0]
        return f"{cls.__module__}:{cls.__qualname__}" if outside else cls.algorithm

    @classmethod
    def translated_file(cls, values: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """Translate a settings file of another system; return settings and messages for the user, one line each."""
        return values, []
