"""Run by the Python that has Tianshou: compares a fleet with Tianshou's vector environment and plain environments."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from tianshou.env import DummyVectorEnv

import envfleet
from envfleet.adapters.tianshou import as_tianshou

N_ENVS = 4


def make() -> gymnasium.Env[Any, Any]:
    return gymnasium.make("CartPole-v1", max_episode_steps=20)


def any_environments_at_once() -> None:
    """Step any subset in any order, with manual resets: every value equals that of DummyVectorEnv."""
    ours = as_tianshou(envfleet.make(make, N_ENVS, seed=1, group_size=1, backend="sequential"))
    theirs = DummyVectorEnv([make] * N_ENVS)
    assert len(ours) == len(theirs) and ours.action_space == theirs.action_space
    assert ours.seed(3) == theirs.seed(3)
    assert [space.sample() for space in ours.action_space] == [space.sample() for space in theirs.action_space]
    assert np.array_equal(ours.reset()[0], theirs.reset()[0])
    rng, ids, ends = np.random.default_rng(0), np.arange(N_ENVS), 0
    for _ in range(200):
        actions = rng.integers(2, size=len(ids))
        received, expected = ours.step(actions, ids), theirs.step(actions, ids)
        for one, other in zip(received[:4], expected[:4], strict=True):
            assert np.array_equal(one, other) and one.dtype == other.dtype
        assert [info["env_id"] for info in received[4]] == [info["env_id"] for info in expected[4]] == ids.tolist()
        ended = ids[received[2] | received[3]]
        ends += len(ended)
        if len(ended):
            assert np.array_equal(ours.reset(ended)[0], theirs.reset(ended)[0])
        ids = rng.permutation(N_ENVS)[: rng.integers(1, N_ENVS + 1)]
    assert ends > 20
    ours.set_env_attr("gravity", 1.0, 2)
    assert ours.get_env_attr("gravity") == [9.8, 9.8, 1.0, 9.8] and ours.get_env_attr("gravity", 2) == [1.0]
    ours.close()


def the_first_that_are_ready() -> None:
    """With wait_num and resets while others step, every environment behaves as if it were stepped alone."""
    fleet = envfleet.make(make, N_ENVS, seed=1, group_size=1, backend="threads", workers=2)
    ours, single = as_tianshou(fleet, wait_num=2), [make() for _ in range(N_ENVS)]
    ours.seed(5)
    for i, env in enumerate(single):
        env.reset(seed=5 + i)
    assert np.array_equal(ours.reset()[0], np.stack([env.reset()[0] for env in single]))
    ids, steps, ends = list(range(N_ENVS)), 0, 0
    expected: dict[int, Any] = {}
    while steps < 400:
        actions = np.array([(steps + i) % 2 for i in ids])
        expected |= {i: single[i].step(int(action)) for i, action in zip(ids, actions, strict=True)}
        observations, _, terminated, truncated, infos = ours.step(actions, ids)
        ids = [info["env_id"] for info in infos]
        assert len(ids) >= 2 and not set(ids) & set(ours.waiting_id)
        for row, i in enumerate(ids):
            wanted = expected.pop(i)
            assert np.array_equal(observations[row], wanted[0])
            assert (terminated[row], truncated[row]) == wanted[2:4]
        ended = [i for row, i in enumerate(ids) if terminated[row] or truncated[row]]
        if ended:
            assert np.array_equal(ours.reset(ended)[0], np.stack([single[i].reset()[0] for i in ended]))
        steps, ends = steps + len(ids), ends + len(ended)
    assert ends > 10
    ours.close()


if __name__ == "__main__":
    any_environments_at_once()
    the_first_that_are_ready()
