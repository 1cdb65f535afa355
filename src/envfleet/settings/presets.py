"""A preset: settings that work for a family of environments, used if the user gives none."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

__all__ = ["Preset"]


@dataclass(frozen=True)
class Preset:
    """Named settings."""

    name: str
    values: dict[str, Any]
    env: dict[str, Any] = field(default_factory=dict)  # settings of the environment, if it declares them
    for_images: bool = True  # whether it also applies to observations with images
    for_memory: bool = False  # whether it also applies to a policy with memory

    def over(self, other: Preset) -> Preset:
        """Merge the two; `self` wins."""
        return Preset(f"{other.name}, {self.name}", {**other.values, **self.values}, {**other.env, **self.env})

    def without(self, name: str) -> Preset:
        """A copy without one setting."""
        return replace(self, values={key: value for key, value in self.values.items() if key != name})
