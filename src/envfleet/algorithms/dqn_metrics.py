"""Training metrics of DQN."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["DQNUpdateMetrics"]


class DQNUpdateMetrics:
    """Collects the metrics of the updates after a rollout; they are averaged once, at the end."""

    def __init__(self) -> None:
        self.norms: list[float] = []
        self._errors: list[Tensor] = []
        self._weights: list[Tensor] = []
        self._values: list[Tensor] = []
        self._margins: list[Tensor] = []

    def add(self, errors: Tensor, weights: Tensor | None, values: Tensor, norm: float, margin: Tensor | None) -> None:
        self._errors.append(errors)
        self._values.append(values)
        self.norms.append(norm)
        if weights is not None:
            self._weights.append(weights)
        if margin is not None:
            self._margins.append(margin)

    def means(self, loss: str) -> dict[str, float]:
        """Return the mean metrics; NaN if there was no update."""
        if not self.norms:
            return dict.fromkeys(("train/loss", "train/q_value", "train/gradient_norm"), float("nan"))
        errors = torch.cat(self._errors)
        losses = functional.smooth_l1_loss(errors, torch.zeros_like(errors), reduction="none")
        losses = losses if loss == "huber" else errors.square()
        if self._weights:
            losses = losses * torch.cat(self._weights)
        margin = float(torch.stack(self._margins).mean()) if self._margins else 0.0
        return {
            "train/loss": float(losses.mean()) + margin,
            "train/q_value": float(torch.cat(self._values).mean()),
            "train/gradient_norm": float(np.mean(self.norms)),
        }
