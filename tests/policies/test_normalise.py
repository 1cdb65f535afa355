"""Running statistics against NumPy and against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from envfleet.policies.normalise import ObservationNormaliser, RewardScaler, RunningMoments


def test_moments_of_parts_are_those_of_the_whole() -> None:
    rows = np.random.default_rng(0).normal(1000.0, [[1.0, 0.01]], (500, 2))
    moments = RunningMoments((2,))
    for part in np.split(rows, [1, 7, 7, 300]):
        moments.update(part.astype(np.float32) if len(part) == 0 else part)
    assert moments.count == 500
    np.testing.assert_allclose(moments.mean, rows.mean(0), rtol=1e-13)
    np.testing.assert_allclose(moments.var, rows.var(0), rtol=1e-9)


def test_moments_before_anything_was_seen_change_nothing() -> None:
    moments = RunningMoments((2,))
    moments.update(np.zeros((0, 2)))
    assert moments.count == 0 and (moments.mean == 0).all() and (moments.var == 1).all()


def test_moments_go_on_from_their_state() -> None:
    rows = np.random.default_rng(1).normal(size=(40, 3))
    one, other = RunningMoments((3,)), RunningMoments((3,))
    one.update(rows[:20])
    other.restore(one.state())
    one.update(rows[20:])
    other.update(rows[20:])
    assert all((one.state()[key] == other.state()[key]).all() for key in ("count", "mean", "var"))


def test_the_normaliser_scales_and_clips_but_never_learns_by_itself() -> None:
    normaliser = ObservationNormaliser((2,))
    assert torch.equal(normaliser(torch.tensor([[3.0, -40.0]])), torch.tensor([[3.0, -10.0]]))
    normaliser.update(np.array([[1.0, 10.0], [3.0, 30.0]]))  # mean 2 and 20, standard deviation 1 and 10
    before = {name: tensor.clone() for name, tensor in normaliser.state_dict().items()}
    given = torch.tensor([[3.0, 0.0], [2.0, 1000.0]])
    torch.testing.assert_close(normaliser(given), torch.tensor([[1.0, -2.0], [0.0, 10.0]]))
    assert all(torch.equal(tensor, before[name]) for name, tensor in normaliser.state_dict().items())
    assert torch.equal(given, torch.tensor([[3.0, 0.0], [2.0, 1000.0]]))


def _scaled_by_a_plain_loop(rollouts: list[tuple[np.ndarray, np.ndarray]], gamma: float) -> list[np.ndarray]:
    seen: list[float] = []
    running = [0.0] * rollouts[0][0].shape[1]
    results = []
    for rewards, ended in rollouts:
        steps, envs = rewards.shape
        for env in range(envs):
            for step in range(steps):
                running[env] = running[env] * gamma + float(rewards[step, env])
                seen.append(running[env])
                if ended[step, env]:
                    running[env] = 0.0
        results.append(np.clip(rewards / np.sqrt(np.var(seen) + 1e-8), -10, 10))
    return results


def test_the_reward_scaler_does_what_a_plain_loop_does() -> None:
    random = np.random.default_rng(2)
    rollouts = [(random.normal(3.0, 5.0, (16, 3)).astype(np.float32), random.random((16, 3)) < 0.2) for _ in range(3)]
    scaler = RewardScaler(0.9)
    for (rewards, ended), expected in zip(rollouts, _scaled_by_a_plain_loop(rollouts, 0.9), strict=True):
        scaled = scaler.scale(rewards, ended)
        assert scaled.dtype == np.float32
        np.testing.assert_allclose(scaled, expected, rtol=1e-5)


def test_scaled_rewards_are_clipped() -> None:
    rewards = np.zeros((200, 1), np.float32)
    rewards[-1] = 1000.0
    assert RewardScaler(0.0).scale(rewards, np.zeros((200, 1), np.bool_)).max() == 10.0


def test_rows_that_are_not_valid_stay_out_of_the_scale() -> None:
    rewards = np.array([[1.0], [1e6], [2.0], [3.0]], np.float32)
    ended, valid = np.zeros((4, 1), np.bool_), np.array([[True], [False], [True], [True]])
    scaler = RewardScaler(0.5)
    scaler.scale(rewards, ended, valid)
    assert scaler.moments.count == 3
    assert scaler.moments.var == pytest.approx(np.var([1.0, 2.0, 4.0]))  # 2.0 starts again; 3.0 + 0.5 * 2.0


def test_the_reward_scaler_goes_on_from_its_state() -> None:
    random = np.random.default_rng(3)
    rewards, ended = random.normal(size=(8, 2)).astype(np.float32), random.random((8, 2)) < 0.3
    one, other = RewardScaler(0.99), RewardScaler(0.99)
    other.restore(one.state())  # also works before the first rollout
    one.scale(rewards, ended)
    other.restore(one.state())
    assert one.scale(rewards, ended).tobytes() == other.scale(rewards, ended).tobytes()


def test_fresh_episodes_begin_with_empty_returns() -> None:
    rewards = np.random.default_rng(3).normal(size=(2, 20, 4)).astype(np.float32)
    running, over = np.zeros((20, 4), np.bool_), np.zeros((20, 4), np.bool_)
    over[-1] = True
    one, other = RewardScaler(0.99), RewardScaler(0.99)
    one.scale(rewards[0], over)
    other.scale(rewards[0], running)
    other.begin_fresh_episodes()
    assert one.scale(rewards[1], running).tobytes() == other.scale(rewards[1], running).tobytes()


def test_columns_of_an_asynchronous_batch_continue_the_returns_of_their_environment() -> None:
    """A batch with two rollouts of environments 2 and 3 equals these rollouts one after the other."""
    random = np.random.default_rng(4)
    first, second = random.normal(size=(2, 16, 2)).astype(np.float32)
    ended = random.random((2, 16, 2)) < 0.1
    one, other = RewardScaler(0.99), RewardScaler(0.99)
    one.scale(np.hstack([first, second]), np.hstack(list(ended)), env_ids=np.array([2, 3, 2, 3]))
    for rewards, over in zip((first, second), ended, strict=True):
        other.scale(rewards, over)
    state, expected = one.state(), other.state()
    assert state["returns"].tolist() == [0.0, 0.0, *expected["returns"]]
    for name in ("count", "mean", "var"):
        np.testing.assert_allclose(state[name], expected[name], rtol=1e-12)
