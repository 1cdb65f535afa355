"""How sure one can be of a mean."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

__all__ = ["confidence_interval"]

# Student's t for 97.5 %, for 1, 2, ... 30 degrees of freedom.
_T = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281,
    2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860,
    2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
)  # fmt: skip
_Z = 1.959964  # of the normal distribution


def confidence_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Where the mean lies with a confidence of 95 %, if the values are spread normally."""
    freedom = len(values) - 1
    if freedom < 1:
        return None
    # Beyond the table, the first terms of the expansion of t around the normal quantile.
    expansion = _Z + (_Z**3 + _Z) / (4 * freedom) + (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / (96 * freedom**2)
    t = _T[freedom - 1] if freedom <= len(_T) else expansion
    mean = float(np.mean(values))
    margin = t * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return mean - margin, mean + margin
