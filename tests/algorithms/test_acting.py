"""A third kind of policy, from outside the package, acts in workers and centrally with the same bytes."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from envfleet.algorithms.acting import PolicyMaker
from envfleet.fleet.make import Hosting, build_fleet
from envfleet.fleet.makers import makers_of
from envfleet.fleet.spec import GroupSettings
from envfleet.policies.flat import FlatParameters
from envfleet.rollout.collectors import CentralCollector, WorkerCollector
from envfleet.rollout.routine import ActingRoutine
from tests.policies.tanh_gaussian import TanhGaussianPolicy, TanhGaussianSettings
from tests.rollout.collecting import kept
from tests.rollout.envs import Counter

Array = np.ndarray[Any, Any]
SEED, ENVS, STEPS, PIECE = 3, 6, 20, 5


def collected(settings: TanhGaussianSettings, acting: str, backend: str) -> tuple[TanhGaussianPolicy, dict[str, Array]]:
    """Return a policy and two rollouts that it collected."""
    routine = ActingRoutine(PolicyMaker(settings.build), STEPS, PIECE, 1)
    fleet = build_fleet(
        makers_of(partial(Counter, "box"), ENVS),
        GroupSettings(SEED, AutoresetMode.SAME_STEP),
        Hosting(backend, workers=None if backend == "sequential" else 2, group_size=3),
        routine=routine if acting == "worker" else None,
    )
    collector_of = WorkerCollector if acting == "worker" else CentralCollector
    with closing(fleet):
        fleet.reset()
        policy = settings.build(fleet.single_observation_space, fleet.single_action_space, seed=SEED)
        weights = FlatParameters(policy.acting_module).numpy()
        with closing(collector_of(fleet, routine, SEED)) as collector:
            assert collector.arrays["weights"].shape == (1, *weights.shape)  # those of the critics are not published
            collector.publish(weights)
            rollouts: dict[str, Array] = {}
            for number in range(2):
                collector.begin(number)
                rollouts |= {f"{number}/{name}": array for name, array in kept(collector.finish()).items()}
    return policy, rollouts


TORCH: dict[str, Any] = {}
RECURRENT, NUMPY = {"remembers": True}, {"in_numpy": True}


@pytest.mark.parametrize(
    ("way", "acting", "backend"),
    [
        (TORCH, "worker", "threads"),
        (NUMPY, "worker", "threads"),
        (RECURRENT, "worker", "threads"),
        (RECURRENT, "worker", "processes"),
        (RECURRENT, "central", "processes"),
    ],
)
def test_a_third_kind_acts_everywhere_with_the_same_bytes(way: dict[str, Any], acting: str, backend: str) -> None:
    settings = TanhGaussianSettings(**way)
    policy, central = collected(settings, "central", "sequential")
    _, other = collected(settings, acting, backend)
    assert other.keys() == central.keys()
    for name, array in central.items():
        assert np.asarray(other[name]).tobytes() == np.asarray(array).tobytes(), name
    assert [name for name in central if name.startswith("0/columns")] == ["0/columns/actions", "0/columns/std"]
    assert central["0/columns/std"].shape == (STEPS, ENVS, 2)
    assert_recorded_what_it_did(policy, central)


def assert_recorded_what_it_did(policy: TanhGaussianPolicy, rollout: dict[str, Array]) -> None:
    """The first steps of the pieces, recomputed from the recorded observations and memory."""
    rows = torch.from_numpy(rollout["0/observations/"][:STEPS:PIECE]).flatten(0, 1)
    memory = torch.from_numpy(rollout["0/memory"][:-1]).flatten(0, 1)
    with torch.inference_mode():
        acted = policy.act({"": rows}, memory, torch.zeros(len(rows), 2))
    std = rollout["0/columns/std"][::PIECE].reshape(-1, 2)
    np.testing.assert_allclose(std, acted.recorded[0], atol=1e-5)
    assert std.std(axis=0).min() > 0  # it depends on the observation
    assert len(np.unique(rollout["0/columns/actions"])) > STEPS  # and the actions on the noise
