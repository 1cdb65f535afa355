"""Settings of a Q-network. Importing this module does not load torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from envfleet.policies.settings import NETWORKS, import_path

if TYPE_CHECKING:
    from gymnasium import spaces

    from envfleet.policies.q_policy import QPolicy

__all__ = ["Q_NETWORKS", "QSettings"]

Q_NETWORKS = (*NETWORKS, "cells")


@dataclass(frozen=True, kw_only=True)
class QSettings:
    """Settings of the network that predicts the value of every action."""

    kind: ClassVar[str] = "q"

    network: str | Callable[..., Any] = "auto"
    policy: str | Callable[..., Any] | None = None
    hidden: tuple[int, ...] = (64, 64)
    activation: Literal["tanh", "relu"] = "relu"
    dueling: bool = True
    noisy: bool = False
    normalise_observations: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the settings as plain data. A class given as an object is recorded as 'module:qualname'."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        for name in ("network", "policy"):
            if callable(plain[name]):
                plain[name] = import_path(plain[name])
        return {**plain, "hidden": list(self.hidden)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> QSettings:
        return cls(**{**data, "hidden": tuple(data["hidden"])})

    def build(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], *, seed: int) -> QPolicy:
        """Build the policy: see `build_q_policy`. Imports torch."""
        from envfleet.policies.q_policy import build_q_policy

        return build_q_policy(observation_space, action_space, self, seed=seed)
