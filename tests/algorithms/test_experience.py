"""No transition leads from an asynchronous batch, or an episode that was cut, into the next one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gymnasium import spaces

from envfleet.algorithms.experience import BatchSpec, ReplayedExperience
from envfleet.rollout.replay_spec import ReplaySpec
from tests.rollout.made import rollout_of, transitions_at
from tests.rollout.test_replay import ENVS, GAMMA, SPACE, World, bytes_of


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
    taken = transitions_at(replay, first[-3:].reshape(-1), steps=3, gamma=GAMMA)
    led_to = taken.following[""].reshape(3, ENVS, 2)
    assert (led_to[..., 1] == 8.0).all()  # the time after the last step; never 1000 or more
    np.testing.assert_allclose(taken.discounts.reshape(3, ENVS)[:, 0], [GAMMA**3, GAMMA**2, GAMMA], rtol=1e-6)


def test_an_environment_goes_on_in_its_column_of_the_next_batch() -> None:
    """The observations go on in every column, as those of two environments may by chance. Environment 0 really does."""
    spec = ReplaySpec(SPACE, ((), np.int64), capacity=60, n_envs=ENVS)
    experience, world = ReplayedExperience(spec, BatchSpec(8, 3, GAMMA), seed=1), World(5)
    for columns in ([0, 1, 2], [0, 2, 2], [0, 1, 2]):
        rollout = world.rollout(4)
        for flags in (rollout.terminated, rollout.truncated):
            flags[...] = False
        rollout.valid[...] = True
        experience.add(replace(rollout, env_ids=np.array(columns)))
    last = np.array([3, 7])[:, None] * ENVS + np.arange(ENVS)  # steps of each batch
    taken = transitions_at(experience.replay, last.reshape(-1), steps=3, gamma=GAMMA)
    led_to = taken.following[""].reshape(2, ENVS, 2)[..., 1]
    assert led_to.tolist() == [[6.0, 4.0, 4.0], [10.0, 8.0, 8.0]]


def test_an_episode_that_a_rollout_does_not_continue_is_saved_as_cut() -> None:
    """The first checkpoint was written before the cut, so its rows have to be written again."""
    spec = ReplaySpec(SPACE, ((), np.int64), capacity=60, n_envs=ENVS)
    experience, again = (ReplayedExperience(spec, BatchSpec(8, 1, GAMMA), seed=1) for _ in range(2))
    world = World(5)
    rollouts = [world.rollout(4), world.rollout(4)]
    for rollout in rollouts:
        for flags in (rollout.terminated, rollout.truncated):
            flags[...] = False
        rollout.valid[...] = True
    experience.add(rollouts[0])
    pieces = {name: piece for name, piece in experience.pieces().items() if piece is not None}
    rollouts[1].observations[""][:, 1, 1] += 1000.0  # a worker died, and its environment began a new episode
    experience.add(rollouts[1])
    later = experience.pieces()
    again.restore(experience.state(), {name: piece or pieces[name] for name, piece in later.items()})
    for each in (experience, again):
        taken = transitions_at(each.replay, 3 * ENVS + np.arange(ENVS), steps=3, gamma=GAMMA)
        assert taken.following[""].tolist() == [[0.0, 6.0], [1.0, 4.0], [2.0, 6.0]]


@pytest.mark.parametrize("frames", [1, 4])
def test_asynchronous_batches_need_the_memory_that_is_announced(frames: int) -> None:
    """After each batch, an observation per environment is stored aside, with the older frames of the next one."""
    steps, envs = 8, 4
    space = spaces.Box(0, 255, (4, 24, 24), np.uint8)
    spec = ReplaySpec(space, ((), np.int64), capacity=400, n_envs=envs, frame_stack=frames, batch_rows=steps)
    experience = ReplayedExperience(spec, BatchSpec(8, 1, GAMMA), seed=1)
    flags = {"terminated": np.zeros((steps, envs), np.bool_), "truncated": np.zeros((steps, envs), np.bool_)}
    for batch in range(30):
        newest = 40 * batch % 200 + np.arange(steps + 1)[:, None] + np.arange(4)  # [time, frame]
        seen = np.broadcast_to(newest[:, None, :, None, None], (steps + 1, envs, 4, 24, 24)).astype(np.uint8)
        rollout = rollout_of(
            seen,
            seen[:0],
            np.zeros((steps, envs), np.int64),
            rewards=np.zeros((steps, envs), np.float32),
            **flags,
            valid=np.ones((steps, envs), np.bool_),
        )
        experience.add(replace(rollout, env_ids=np.arange(envs)))
    assert bytes_of(experience.replay) == spec.bytes
