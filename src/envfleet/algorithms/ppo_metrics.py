"""Training metrics of PPO."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

__all__ = ["LossTerms", "PPOUpdateMetrics", "Rates", "explained_variance"]

Array = np.ndarray[Any, Any]
LossTerms = tuple[Tensor, ...]  # gain, log-ratio, value error, entropy: each [row]


class Rates(NamedTuple):
    """The values that follow a schedule, for one rollout."""

    learning: float
    clip: float
    entropy: float


class PPOUpdateMetrics:
    """Collects the metrics of the minibatches of a rollout; they are averaged once, at the end."""

    def __init__(self) -> None:
        self._rows: list[LossTerms] = []
        self._norms: list[Tensor] = []

    @property
    def count(self) -> int:
        return len(self._norms)

    def add(self, rows: list[LossTerms], norm: Tensor) -> None:
        self._newest = rows
        self._rows += rows
        self._norms.append(norm)

    def newest_kl(self) -> float:
        return float(_divergence(torch.cat([rows[1] for rows in self._newest])).mean())

    def means(self, value_coefficient: float, rates: Rates) -> dict[str, float]:
        """Return means over all minibatches, under the usual metric names."""
        if not self._rows:  # no valid step: all workers died before their first one
            return {}
        gain, log_ratio, error, entropy = (torch.cat(parts) for parts in zip(*self._rows, strict=True))
        policy_loss, value_loss = -float(gain.mean()), float(error.square().mean())
        mean_entropy = float(entropy.mean())
        return {
            "train/loss": policy_loss + value_coefficient * value_loss - rates.entropy * mean_entropy,
            "train/policy_gradient_loss": policy_loss,
            "train/value_loss": value_loss,
            "train/entropy": mean_entropy,
            "train/approx_kl": float(_divergence(log_ratio).mean()),
            "train/clip_fraction": float(((log_ratio.exp() - 1.0).abs() > rates.clip).float().mean()),
            "train/gradient_norm": float(torch.stack(self._norms).mean()),
        }


def _divergence(log_ratio: Tensor) -> Tensor:
    """Schulman's estimator of the KL divergence from the policy that acted: low variance, never negative."""
    return log_ratio.exp() - 1.0 - log_ratio


def explained_variance(values: Array, returns: Array) -> float:
    """Explained variance of the returns. 1: the values predict them; 0: no better than their mean; below 0: worse."""
    spread = float(np.var(returns)) if len(returns) else 0.0
    return float("nan") if spread == 0.0 else 1.0 - float(np.var(returns - values)) / spread
