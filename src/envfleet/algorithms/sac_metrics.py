"""Training metrics of SAC."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

__all__ = ["SACUpdateMetrics"]

_NAMES = (
    "train/critic_loss",
    "train/q_value",
    "train/critic_gradient_norm",
    "train/actor_loss",
    "train/entropy",
    "train/actor_gradient_norm",
    "train/ent_coef",
)


class SACUpdateMetrics:
    """Collects the metrics of the updates after a rollout; they are averaged once, at the end."""

    def __init__(self) -> None:
        self._found: dict[str, list[Tensor]] = {name: [] for name in _NAMES}

    def add(self, **metrics: Tensor) -> None:
        """Add the metrics of one update, by the last part of their names."""
        for name, value in metrics.items():
            self._found[f"train/{name}"].append(value)

    def means(self) -> dict[str, float]:
        """Return the mean metrics; NaN if there was no update."""
        return {
            name: float(torch.stack(values).mean()) if values else float(np.nan) for name, values in self._found.items()
        }
