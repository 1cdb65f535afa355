"""The fleet behaves like Stable-Baselines3's own vector environments, and its algorithms learn on it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit

import envfleet
from envfleet.errors import MissingExtraError, SettingsError
from envfleet.fleet.fleet import Fleet
from tests.adapters.envs import Switches, make_walk

pytest.importorskip("stable_baselines3")

import torch
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor, VecNormalize

from envfleet.adapters.stable_baselines3 import FleetVecEnv, as_sb3

BACKENDS = ["sequential", "threads", "processes"]
N_ENVS = 3


@pytest.fixture(params=BACKENDS)
def walks(request: pytest.FixtureRequest) -> Iterator[FleetVecEnv]:
    fleet = envfleet.make(
        make_walk, N_ENVS, backend=request.param, workers=2, group_size=1, autoreset="same_step", quiet=True
    )
    vec_env = as_sb3(fleet)
    yield vec_env
    vec_env.close()


def test_actions_of_multi_binary_arrive_as_whole_numbers() -> None:
    vec_env = as_sb3(envfleet.make(Switches, 4, backend="sequential", autoreset="same_step"))
    with contextlib.closing(vec_env):
        vec_env.reset()
        rewards = vec_env.step(np.tile(np.array([1.0, 0.0, 1.0], np.float32), (4, 1)))[1]
        assert rewards.tolist() == [2.0] * 4
        PPO("MlpPolicy", vec_env, n_steps=8, batch_size=16, n_epochs=1).learn(32)


def assert_same(ours: Any, theirs: Any) -> None:
    assert isinstance(ours, dict) == isinstance(theirs, dict)
    if isinstance(theirs, dict):
        assert set(ours) == set(theirs)
        for key in theirs:
            assert_same(ours[key], theirs[key])
    else:
        np.testing.assert_array_equal(ours, theirs)


def test_every_value_is_that_of_dummy_vec_env(walks: FleetVecEnv) -> None:
    reference = DummyVecEnv([make_walk] * N_ENVS)
    for each in (walks, reference):
        each.seed(7)
        each.set_options([{"offset": 1.0}, {}, {"offset": 1.0}])
    assert_same(walks.reset(), reference.reset())
    assert_same(walks.reset_infos[0], reference.reset_infos[0])
    rng = np.random.default_rng(0)
    ends: list[bool] = []
    for _ in range(60):
        actions = rng.integers(3, size=N_ENVS)
        observations, rewards, dones, infos = walks.step(actions)
        expected_observations, expected_rewards, expected_dones, expected_infos = reference.step(actions)
        assert_same(observations, expected_observations)
        np.testing.assert_array_equal(rewards, expected_rewards)
        assert (rewards.dtype, dones.dtype) == (expected_rewards.dtype, expected_dones.dtype)
        np.testing.assert_array_equal(dones, expected_dones)
        for ours, theirs in zip(infos, expected_infos, strict=True):
            assert_same(ours, theirs)
        for ours, theirs in zip(walks.reset_infos, reference.reset_infos, strict=True):
            assert_same(ours, theirs)
        ends += [info["TimeLimit.truncated"] for info, done in zip(infos, dones, strict=True) if done]
    assert set(ends) == {True, False}, "the walk has to end in both ways for this test to mean something"
    assert_same(walks.reset(), reference.reset())  # seeds and options apply to one reset only


def test_options_may_be_arrays(walks: FleetVecEnv) -> None:
    reference = DummyVecEnv([make_walk] * N_ENVS)
    offset = np.array([1.0, 2.0], np.float32)
    for each in (walks, reference):
        each.seed(7)
        each.set_options([{"offset": offset}, {"offset": -offset}, {"offset": offset.copy()}])
    masks = [rows.tolist() for _, rows in walks._options_by_rows()]
    assert masks == [[True, False, True], [False, True, False]]
    assert_same(walks.reset(), reference.reset())
    for ours, theirs in zip(walks.reset_infos, reference.reset_infos, strict=True):
        assert_same(ours, theirs)


def test_observations_stay_as_they_were_handed_out() -> None:
    """Stable-Baselines3 reads an observation after the next step, even if the fleet returns views."""
    fleet = envfleet.make("CartPole-v1", 2, backend="sequential", autoreset="same_step", copy=False, quiet=True)
    vec_env = as_sb3(fleet)
    vec_env.seed(0)
    first = vec_env.reset()
    before = first.copy()
    for _ in range(3):
        vec_env.step(np.zeros(2, np.int64))
    np.testing.assert_array_equal(first, before)
    vec_env.close()


def test_reset_drops_a_step_under_way(walks: FleetVecEnv) -> None:
    walks.seed(3)
    first = walks.reset()
    walks.step_async(np.zeros(N_ENVS, np.int64))
    walks.seed(3)
    assert_same(walks.reset(), first)
    walks.step(np.zeros(N_ENVS, np.int64))


def test_attributes_and_methods_of_chosen_environments(walks: FleetVecEnv) -> None:
    walks.set_attr("charge", 5.0, indices=[0, 2])
    assert walks.get_attr("charge") == [5.0, 0.0, 5.0]
    assert walks.get_attr("charge", indices=1) == [0.0]
    walks.set_attr("charge", [1, 2])  # every environment gets the whole list
    assert walks.get_attr("charge") == [[1, 2]] * N_ENVS
    assert walks.env_method("double", 4, indices=[2]) == [8]
    assert walks.env_method("double", number=1) == [2, 2, 2]
    assert walks.has_attr("charge")
    assert not walks.has_attr("mass")


def test_wrappers_are_found(walks: FleetVecEnv) -> None:
    assert walks.env_is_wrapped(TimeLimit) == [True] * N_ENVS
    assert walks.env_is_wrapped(gymnasium.Wrapper, indices=0) == [True]
    assert walks.env_is_wrapped(Monitor, indices=[0, 1]) == [False, False]


def test_pictures(walks: FleetVecEnv) -> None:
    walks.reset()
    assert [picture.shape for picture in walks.get_images()] == [(4, 6, 3)] * N_ENVS
    assert walks.render(mode="rgb_array").shape == (8, 12, 3)


def test_another_autoreset_mode_is_refused() -> None:
    fleet = envfleet.make("CartPole-v1", 2, backend="sequential", quiet=True)
    with pytest.raises(SettingsError, match='autoreset="same_step"'):
        as_sb3(fleet)
    fleet.close()


def test_without_stable_baselines3_the_error_names_the_extra() -> None:
    program = (
        "import sys; sys.modules['stable_baselines3'] = None\n"
        "from envfleet.errors import MissingExtraError\n"
        "try:\n    import envfleet.adapters.stable_baselines3\n"
        "except MissingExtraError as error:\n    print(error)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert 'pip install "envfleet[sb3]"' in result.stdout
    assert issubclass(MissingExtraError, ImportError)


# ------------------------------------------------------------------------------------------------- learning


def cart_poles(backend: str, n_envs: int) -> Fleet:
    return envfleet.make("CartPole-v1", n_envs, backend=backend, autoreset="same_step", seed=0, quiet=True)


def test_statistics_wrappers_see_whole_episodes() -> None:
    vec_env = VecNormalize(VecMonitor(as_sb3(cart_poles("sequential", 4))))
    vec_env.seed(0)
    vec_env.reset()
    lengths: list[int] = []
    for _ in range(100):
        _, _, dones, infos = vec_env.step(np.ones(4, np.int64))
        for info, done in zip(infos, dones, strict=True):
            assert ("episode" in info) == done
            if done:
                assert info["episode"]["r"] == info["episode"]["l"]  # a reward of 1 per step
                assert np.abs(info["terminal_observation"]).max() <= 10  # also normalised and clipped
                lengths.append(info["episode"]["l"])
    assert lengths
    assert set(lengths) <= set(range(8, 12))  # always to the right: falls after about ten steps
    vec_env.close()


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Train on one thread: faster for small networks, and leaves the other cores to the environments."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.proof
@pytest.mark.usefixtures("one_thread")
def test_ppo_learns_on_a_fleet() -> None:
    """CartPole-v1, seed 0, 20,480 steps in 8 environments: a mean return of at least 200 (random: 22)."""
    vec_env = VecMonitor(as_sb3(cart_poles("processes", 8)))
    model = PPO(
        "MlpPolicy",
        vec_env,
        n_steps=128,
        batch_size=256,
        n_epochs=5,
        learning_rate=1e-3,
        gamma=0.98,
        gae_lambda=0.9,
        seed=0,
        device="cpu",
    )
    model.learn(20_480)
    score, _ = evaluate_policy(model, vec_env, n_eval_episodes=16)
    vec_env.close()
    assert score >= 200


@pytest.mark.usefixtures("one_thread")
def test_replay_holds_the_last_observation_of_an_episode_not_the_first_of_the_next() -> None:
    vec_env = VecMonitor(as_sb3(cart_poles("processes", 4)))
    model = DQN("MlpPolicy", vec_env, learning_starts=100, buffer_size=2_000, seed=0, device="cpu")
    model.learn(1_000)
    replay = model.replay_buffer
    assert replay is not None
    count = replay.size() - 1
    led_to, then_seen = replay.next_observations[:count], replay.observations[1 : count + 1]
    goes_on = (led_to == then_seen).all(axis=-1)  # [time, env]
    ended = replay.dones[:count].astype(bool)
    assert ended.any()
    np.testing.assert_array_equal(goes_on, ~ended)
    vec_env.close()
