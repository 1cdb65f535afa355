"""Rates that follow the budget: constant, or falling to zero, after a warm-up if wanted.

Importing this loads no torch.
"""

from __future__ import annotations

import math
from typing import Literal

__all__ = ["SCHEDULES_HELP", "RateSchedule", "share_of_rate"]

RateSchedule = Literal["constant", "linear", "cosine"]
SCHEDULES_HELP = "linear falls towards zero over the budget, cosine too: slowly at first and at the end."


def share_of_rate(schedule: RateSchedule, begun: float, reached: float | None = None, *, warmup: float = 0.0) -> float:
    """The share of a rate that an update has, 0 to 1.

    `begun` is the share of the budget that was used up before the rollout, `reached` the share with it (the same if not
    given). The first update of a falling schedule has the whole rate, and none has zero. With a warm-up, the rate rises
    linearly over that share of the budget: the first update is above zero, the one that completes the warm-up has the
    whole rate, and the schedule falls over the rest.
    """
    if begun < warmup:
        return min(1.0, (begun if reached is None else reached) / warmup)
    left = max(0.0, 1.0 - (begun - warmup) / (1.0 - warmup))
    if schedule == "linear":
        return left
    return 0.5 * (1.0 - math.cos(math.pi * left)) if schedule == "cosine" else 1.0
