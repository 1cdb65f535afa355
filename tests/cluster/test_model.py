"""The model of what an update on N nodes costs."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.cluster.measuring import constants_of
from benchmarks.cluster.model import Constants, Load, expected_maximum, first_limit, share_of_linear, update

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
        (FREE, Load(1.0, 0.0, 0.0, 0.0, spread=0.1), (98, "waiting for the slowest host")),
        # 0.88 s of learning are hidden behind more than 1.25 s of collecting: more hosts wait for the slowest one.
        (FREE, Load(1.0, 0.0, 0.0, 0.009, spread=0.1), (98, "waiting for the slowest host")),
        (Constants(0.0004, 0.003, 1e9), Load(1.0, 1e6, 0.0, 0.05, spread=0.1), (25, "learning")),
        (FREE, Load(1.0, 0.0, 0.0, 0.0), None),
    ],
)
def test_the_first_limit(constants: Constants, load: Load, limit: tuple[int, str] | None) -> None:
    assert first_limit(constants, load, "overlap") == limit


def test_the_slowest_of_some_hosts() -> None:
    """Against known values, and against simulation: 20,000 draws have an error below 0.02 at four deviations."""
    known = {1: 0.0, 2: 0.5642, 4: 1.0294, 8: 1.4236, 100: 2.5076, 1000: 3.2414}
    assert {count: expected_maximum(count) for count in known} == pytest.approx(known, abs=1e-4)
    generator = np.random.default_rng(7)
    for count in (2, 4, 8, 32):
        drawn = generator.standard_normal((20_000, count)).max(axis=1).mean()
        assert expected_maximum(count) == pytest.approx(drawn, abs=0.025)
    parts = update(FREE, Load(2.0, 0.0, 0.0, 0.0, spread=0.1), 4)
    assert parts.waiting == pytest.approx(2.0 * 0.1 * expected_maximum(4))


def test_constants_are_never_negative() -> None:
    """On a busy machine the driver may seem to work less with a cluster."""

    def runs(rollout: float, driver_cpu: float, rollout_bytes: float) -> list[dict[str, float]]:
        return [{"rollout": rollout, "driver_cpu": driver_cpu, "rollout_bytes": rollout_bytes, "weight_bytes": 0.0}]

    alone = {"vectors": runs(1.0, 0.02, 1e3), "pictures": runs(1.0, 0.02, 1e6)}
    single = {"vectors": runs(1.005, 0.01, 1e3), "pictures": runs(1.1, 0.02, 1e6)}
    found = constants_of(alone, single)
    assert found.per_host == 0.0 and found.latency == pytest.approx(0.005)
    assert found.bandwidth == pytest.approx(999e3 / 0.095)
