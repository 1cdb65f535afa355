"""Rate schedules over the budget: constant, or decaying towards zero, with an optional warm-up.

Importing this does not load torch.
"""

from __future__ import annotations

import math
from typing import Literal

__all__ = ["SCHEDULES_HELP", "RateSchedule", "share_of_rate"]

RateSchedule = Literal["constant", "linear", "cosine"]
SCHEDULES_HELP = "Schedule over the budget: constant, or linear or cosine decay towards zero."


def share_of_rate(schedule: RateSchedule, begun: float, reached: float | None = None, *, warmup: float = 0.0) -> float:
    """Return the factor of a rate for an update, 0 to 1.

    `begun` is the fraction of the budget used before the rollout, `reached` the fraction used after it (default:
    `begun`). The first update of a decaying schedule has the full rate, and none has zero. With a warm-up, the rate
    first rises linearly over that fraction of the budget: the first update is above zero, and the one that completes
    the warm-up has the full rate. The schedule then decays over the rest.
    """
    if begun < warmup:
        return min(1.0, (begun if reached is None else reached) / warmup)
    left = max(0.0, 1.0 - (begun - warmup) / (1.0 - warmup))
    if schedule == "linear":
        return left
    return 0.5 * (1.0 - math.cos(math.pi * left)) if schedule == "cosine" else 1.0
