"""Confidence intervals of a mean, and statistics to compare algorithms.

The second part follows Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice" (2021):
interquartile mean, stratified bootstrap, probability of improvement. Their library, rliable, computes the same figures;
the tests compare with its numbers. Scores have the shape [run, task]; a comparison on one environment has one task.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

__all__ = [
    "bootstrap_interval",
    "confidence_interval",
    "interquartile_mean",
    "probability_of_improvement",
]

Array = np.ndarray[Any, Any]

# Student's t for 97.5 %, for 1, 2, ... 30 degrees of freedom.
_T = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281,
    2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860,
    2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
)  # fmt: skip
_Z = 1.959964  # the same quantile of the normal distribution


def confidence_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """95 % confidence interval of the mean, assuming normally distributed values; None for fewer than two values."""
    freedom = len(values) - 1
    if freedom < 1:
        return None
    # Beyond the table, the first terms of the expansion of t around the normal quantile.
    expansion = _Z + (_Z**3 + _Z) / (4 * freedom) + (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / (96 * freedom**2)
    t = _T[freedom - 1] if freedom <= len(_T) else expansion
    mean = float(np.mean(values))
    margin = t * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return mean - margin, mean + margin


def interquartile_mean(scores: Array) -> Array:
    """Mean of the middle half of the scores of all runs and tasks: [..., run, task] to [...].

    Drops a quarter of the scores at either end, rounded down, so fewer than four scores are all kept.
    """
    flat = np.sort(np.reshape(scores, (*scores.shape[:-2], -1)), axis=-1)
    count = flat.shape[-1]
    left_out = count // 4
    middle: Array = np.mean(flat[..., left_out : count - left_out], axis=-1)
    return middle


def probability_of_improvement(scores: Array, others: Array) -> Array:
    """Probability that a run of `scores` beats a run of `others`, averaged over tasks; ties count half.

    Both have the shape [..., run, task].
    """
    ours, theirs = scores[..., :, None, :], others[..., None, :, :]
    wins = (ours > theirs) + 0.5 * (ours == theirs)
    probability: Array = np.mean(wins, axis=(-3, -2, -1))
    return probability


def bootstrap_interval(
    statistic: Callable[..., Array], *samples: Array, resamples: int = 10_000, seed: int = 0
) -> tuple[float, float]:
    """95 % confidence interval of a statistic, from the percentiles of its bootstrap distribution.

    Each sample is [run, task]. Runs are drawn with replacement, separately for each task and sample (stratified).
    `statistic` takes the samples with the resamples as a first axis. The same samples give the same interval.
    """
    generator = np.random.default_rng(seed)
    drawn = []
    for sample in samples:
        runs = generator.integers(sample.shape[0], size=(resamples, *sample.shape))
        drawn.append(np.take_along_axis(sample[None], runs, axis=1))
    low, high = np.percentile(statistic(*drawn), (2.5, 97.5))
    return float(low), float(high)
