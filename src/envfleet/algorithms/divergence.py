"""Training that has diverged: weights or metrics that are no longer numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from envfleet.errors import TrainingError

__all__ = ["refuse_nan"]


def refuse_nan(when: str, *weights: Tensor, metrics: Mapping[str, float] | None = None, remedy: str = "") -> None:
    """Raise TrainingError if weights or metrics are NaN or infinite.

    Metrics are looked at too, because an infinite loss may leave the weights unchanged: its gradient is scaled to zero.
    """
    bad = [name for name, value in (metrics or {}).items() if not math.isfinite(value)]
    sound = all(bool(torch.isfinite(each.sum())) for each in weights)
    if sound and not bad:
        return
    what = f"{bad[0]} is no longer a number" if sound else "the weights are no longer numbers"
    raise TrainingError(
        f"{what} (NaN or infinite) after {when}",
        hint="start a new run from its last checkpoint (--init-from RUN) with a lower learning_rate, or look for "
        f"rewards or observations of extreme size{remedy}",
    )
