"""Interquartile mean, stratified bootstrap and probability of improvement, against the numbers of other libraries.

The numbers come from rliable 1.2.0 (aggregate_iqm, which is scipy's trim_mean, probability_of_improvement, and
get_interval_estimates with 50,000 and 5,000 resamples) on the same scores.
"""

from __future__ import annotations

import numpy as np
import pytest

from envfleet.confidence import bootstrap_interval, interquartile_mean, probability_of_improvement

OURS = np.array(
    [[10.0, 10.9, 9.18], [7.33, 8.64, 7.03], [10.18, 14.02, 8.52], [8.14, 11.47, 11.07], [10.32, 7.21, 9.91]]
)
THEIRS = np.array(
    [
        [10.09, 3.97, 6.63],
        [2.3, 4.13, 2.47],
        [7.29, 4.2, 8.81],
        [8.47, 7.44, 0.45],
        [6.38, 7.85, 8.34],
        [3.41, 6.57, 5.06],
        [5.57, 11.18, 5.58],
    ]
)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [(OURS, 9.532222222222224), (THEIRS, 6.0636363636363635), (OURS[:, :1], 9.44), (THEIRS[:, :1], 6.224)],
)
def test_interquartile_mean(scores: np.ndarray, expected: float) -> None:
    assert float(interquartile_mean(scores)) == pytest.approx(expected, rel=1e-12)


def test_of_fewer_than_four_scores_the_interquartile_mean_is_the_mean() -> None:
    assert float(interquartile_mean(np.array([[1.0], [2.0], [9.0]]))) == 4.0
    assert float(interquartile_mean(np.array([[1.0], [2.0], [4.0], [90.0]]))) == 3.0


def test_interquartile_mean_of_many_samples_at_once() -> None:
    many = np.stack([OURS, OURS + 1.0, 2.0 * OURS])
    one = float(interquartile_mean(OURS))
    assert interquartile_mean(many).tolist() == pytest.approx([one, one + 1.0, 2.0 * one])


def test_probability_of_improvement() -> None:
    assert float(probability_of_improvement(OURS, THEIRS)) == pytest.approx(0.8761904761904762)
    assert float(probability_of_improvement(OURS[:, :1], THEIRS[:, :1])) == pytest.approx(0.8571428571428571)
    tied = np.array([[1.0], [2.0], [2.0], [3.0]]), np.array([[2.0], [2.0], [4.0]])
    assert float(probability_of_improvement(*tied)) == pytest.approx(1 / 3)
    assert float(probability_of_improvement(OURS, OURS)) == 0.5


@pytest.mark.parametrize(
    ("scores", "interval"),
    [
        (OURS, (8.45, 10.39333333)),
        (THEIRS, (4.75727273, 7.35090909)),
        (OURS[:, :1], (7.6, 10.27333333)),
        (THEIRS[:, :1], (3.992, 8.376)),
    ],
)
def test_bootstrap_of_the_interquartile_mean(scores: np.ndarray, interval: tuple[float, float]) -> None:
    # Two bootstraps of this size differ by a few percent of the interval's width.
    margin = 0.05 * (interval[1] - interval[0])
    assert bootstrap_interval(interquartile_mean, scores, resamples=20_000) == pytest.approx(interval, abs=margin)


def test_bootstrap_of_the_probability_of_improvement() -> None:
    found = bootstrap_interval(probability_of_improvement, OURS, THEIRS)
    assert found == pytest.approx((0.75238095, 0.97142857), abs=0.02)


def test_the_bootstrap_repeats_and_stays_within_each_task() -> None:
    assert bootstrap_interval(interquartile_mean, OURS) == bootstrap_interval(interquartile_mean, OURS)
    apart = np.array([[0.0, 100.0], [0.0, 100.0]])  # runs differ only between tasks, so every resample is the same
    assert bootstrap_interval(lambda drawn: drawn.mean(axis=(1, 2)), apart) == (50.0, 50.0)
