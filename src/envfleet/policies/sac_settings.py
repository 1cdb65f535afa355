"""Settings of SAC's policy. Importing this module does not load torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from envfleet.policies.history_settings import HistorySettings
from envfleet.policies.settings import import_path

if TYPE_CHECKING:
    from gymnasium import spaces

    from envfleet.policies.sac_policy import SACPolicy

__all__ = ["SACPolicySettings"]


@dataclass(frozen=True, kw_only=True)
class SACPolicySettings:
    """Settings of an actor, twin critics and a temperature."""

    kind: ClassVar[str] = "sac"

    network: str | Callable[..., Any] = "auto"
    hidden: tuple[int, ...] = (256, 256)
    layer_norm: bool = False
    dropout: float = 0.0
    batch_norm: bool = False  # the critics have batch normalisation, and there are no target networks
    temperature: float = 1.0
    normalise_observations: bool = False
    history: HistorySettings | None = None  # the memory
    markov_actor: bool = False  # only the critics remember

    def to_json(self) -> dict[str, Any]:
        """Return the settings as plain data. A class given as an object is recorded as 'module:qualname'."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        if callable(self.network):
            plain["network"] = import_path(self.network)
        history = None if self.history is None else self.history.to_json()
        return {**plain, "hidden": list(self.hidden), "history": history}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SACPolicySettings:
        history = None if data["history"] is None else HistorySettings.from_json(data["history"])
        return cls(**{**data, "hidden": tuple(data["hidden"]), "history": history})

    def build(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], *, seed: int) -> SACPolicy:
        """Build the policy: see `build_sac_policy`. Imports torch."""
        from envfleet.policies.sac_policy import build_sac_policy

        return build_sac_policy(observation_space, action_space, self, seed=seed)
