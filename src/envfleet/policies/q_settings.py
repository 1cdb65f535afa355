"""What a Q-network looks like, as settings. Importing this module does not load torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["QSettings"]


@dataclass(frozen=True, kw_only=True)
class QSettings:
    """The network that gives every action its value."""

    network: Literal["auto", "mlp", "nature", "impala", "cells"] = "auto"
    hidden: tuple[int, ...] = (64, 64)
    activation: Literal["tanh", "relu"] = "relu"
    dueling: bool = True
    noisy: bool = False
    normalise_observations: bool = False

    def to_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "hidden": list(self.hidden)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> QSettings:
        return cls(**{**data, "hidden": tuple(data["hidden"])})
