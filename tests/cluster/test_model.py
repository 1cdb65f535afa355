"""The model of what an update on N nodes costs."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.cluster.measuring import constants_of
from benchmarks.cluster.model import Constants, Load, expected_maximum, first_limit, share_of_linear, update

FREE = Constants(per_host=0.0, latency=0.0, bandwidth=float("inf"))


def test_an_update_is_the_sum_of_its_parts() -> None:
    """The cable needs longer for rows than the driver, so each further host adds the time of its rows there."""
    parts = update(Constants(0.002, 0.01, 1e6, 2e-7, 3e-7), Load(0.5, 5000.0, 500.0, 0.05), 4)
    assert parts.publishing == pytest.approx(0.001 + 0.0005)
    assert parts.receiving == pytest.approx(0.01 + 0.001 + 0.005 + 0.001 + 0.0015 + 3 * 0.005)
    assert parts.copying == pytest.approx(4 * (0.002 + 0.0015)) and parts.learning == pytest.approx(0.2)
    assert parts.seconds("sync") == pytest.approx(0.0015 + 0.5 + 0.0335 + 0.2)
    assert parts.seconds("overlap") == pytest.approx(0.0015 + 0.5 + 0.0335)
    assert update(FREE, Load(0.1, 0.0, 0.0, 0.05), 4).seconds("overlap") == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("constants", "load", "seconds"),
    [
        (Constants(0.01, 0.0, 1e6), Load(0.0, 0.0, 7000.0, 0.0), 0.007),  # weights through the cable
        (Constants(0.01, 0.0, 1e6), Load(0.0, 3000.0, 3000.0, 0.0), 0.005),  # the driver's work for a message
        (Constants(0.01, 0.0, 1e6, copying=1e-6), Load(0.0, 3000.0, 7000.0, 0.0), 0.008),  # and for its rows
        (Constants(0.01, 0.0, 1e6, packing=1e-3), Load(0.0, 7000.0, 3000.0, 0.0), 0.007),  # hosts pack side by side
    ],
)
def test_a_further_host_adds_the_slowest_stage(constants: Constants, load: Load, seconds: float) -> None:
    added = update(constants, load, 9).seconds("sync") - update(constants, load, 8).seconds("sync")
    assert added == pytest.approx(seconds)


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


def runs(rollout: float, driver_cpu: float, rollout_bytes: float) -> list[dict[str, float]]:
    return [{"rollout": rollout, "driver_cpu": driver_cpu, "rollout_bytes": rollout_bytes, "weight_bytes": 0.0}]


def test_constants_come_from_one_node() -> None:
    alone = {"vectors": runs(1.0, 0.02, 0.0), "pictures": runs(1.1, 0.05, 1e6)}
    single = {"vectors": runs(1.005, 0.022, 0.0), "pictures": runs(1.125, 0.056, 1e6)}
    found = constants_of(alone, single, 1e8)
    assert found.per_host == pytest.approx(0.002) and found.latency == pytest.approx(0.003)
    assert found.copying == pytest.approx(4e-9) and found.packing == pytest.approx(6e-9) and found.bandwidth == 1e8


def test_constants_are_never_negative() -> None:
    """On a busy machine the driver may seem to work less with a cluster."""
    alone = {"vectors": runs(1.0, 0.02, 0.0), "pictures": runs(1.0, 0.02, 1e6)}
    single = {"vectors": runs(1.005, 0.01, 0.0), "pictures": runs(1.1, 0.02, 1e6)}
    found = constants_of(alone, single, 1e7)
    assert found.per_host == 0.0 and found.latency == pytest.approx(0.005)
    assert found.copying == found.packing == 0.0
