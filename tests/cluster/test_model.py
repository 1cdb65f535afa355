"""The model of what an update on N nodes costs."""

from __future__ import annotations

import pytest

from benchmarks.cluster.model import Constants, Load, first_limit, share_of_linear, update

FREE = Constants(per_host=0.0, latency=0.0, bandwidth=float("inf"))


def test_an_update_is_the_sum_of_its_parts() -> None:
    parts = update(Constants(0.002, 0.01, 1e6), Load(0.5, 1000.0, 500.0, 0.05), 4)
    assert parts.publishing == pytest.approx(4 * (0.001 + 0.0005))
    assert parts.receiving == pytest.approx(0.01 + 4 * (0.001 + 0.001))
    assert parts.learning == pytest.approx(0.2)
    assert parts.seconds("sync") == pytest.approx(0.006 + 0.5 + 0.018 + 0.2)
    assert parts.seconds("overlap") == pytest.approx(0.006 + 0.5 + 0.018)


def test_learning_is_hidden_until_it_takes_longer_than_collecting() -> None:
    load = Load(1.0, 0.0, 0.0, 0.1)
    assert share_of_linear(FREE, load, 10, "overlap") == pytest.approx(1.0)
    assert share_of_linear(FREE, load, 20, "overlap") == pytest.approx(0.5)
    assert share_of_linear(FREE, load, 10, "sync") == pytest.approx(1.1 / 2.0)


@pytest.mark.parametrize(
    ("constants", "load", "limit"),
    [
        (FREE, Load(1.0, 0.0, 0.0, 0.1), (13, "learning")),
        (Constants(0.0, 0.0, 1e6), Load(1.0, 1e5, 0.0, 0.0), (3, "receiving rows")),
        (Constants(0.0, 0.0, 1e6), Load(1.0, 0.0, 1e5, 0.0), (3, "publishing weights")),
        (FREE, Load(1.0, 0.0, 0.0, 0.0, spread=0.1), (23, "waiting for the slowest host")),
        (FREE, Load(1.0, 0.0, 0.0, 0.0), None),
    ],
)
def test_the_first_limit(constants: Constants, load: Load, limit: tuple[int, str] | None) -> None:
    assert first_limit(constants, load, "overlap") == limit
