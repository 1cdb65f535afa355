"""Asynchronous batches in the replay: no transition leads from one batch into the next."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from envfleet.algorithms.experience import BatchSpec, ReplayedExperience
from envfleet.rollout.replay_spec import ReplaySpec
from tests.rollout.test_replay import ENVS, GAMMA, SPACE, World


@pytest.mark.parametrize("prioritised", [False, True])
def test_the_last_steps_of_a_batch_lead_to_its_last_observations(prioritised: bool) -> None:
    """Observations are (environment, time): here those of another time, as of another environment, follow."""
    spec = ReplaySpec(SPACE, ((), np.int64), capacity=60, n_envs=ENVS, prioritised=prioritised)
    experience = ReplayedExperience(spec, BatchSpec(8, 3, GAMMA), seed=1)
    columns = np.array([1, 2, 1])
    for begins in (0, 1000):
        world = World(5)
        world.time = begins
        rollout = world.rollout(8)
        for flags in (rollout.terminated, rollout.truncated):
            flags[...] = False
        rollout.valid[...] = True
        experience.add(replace(rollout, env_ids=columns))
    replay = experience.replay
    first = np.arange(8 * ENVS).reshape(8, ENVS)
    taken = replay.take(first[-3:].reshape(-1), steps=3, gamma=GAMMA)
    led_to = taken.following[""].reshape(3, ENVS, 2)
    assert (led_to[..., 1] == 8.0).all()  # the time after the last step; never 1000 or more
    np.testing.assert_allclose(taken.discounts.reshape(3, ENVS)[:, 0], [GAMMA**3, GAMMA**2, GAMMA], rtol=1e-6)
