"""Advantages match the definition, and nothing leaks across an episode, an environment or a lost step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envfleet.rollout.advantages import generalized_advantages

Array = np.ndarray[Any, Any]
GAMMA, LAM = 0.9, 0.8


def by_definition(data: dict[str, Array], gamma: float, lam: float) -> Array:
    """Compute each advantage separately, as the sum of the discounted deltas that follow it in its episode."""
    steps, envs = data["rewards"].shape
    advantages = np.zeros((steps, envs))
    for env in range(envs):
        for t in range(steps):
            weight = 1.0
            for later in range(t, steps):
                if not data["valid"][later, env]:
                    break  # lost step: the chain ends before it
                if data["terminated"][later, env]:
                    following = 0.0
                elif data["truncated"][later, env]:
                    following = data["final_values"][later, env]
                else:
                    following = data["values"][later + 1, env]
                delta = data["rewards"][later, env] + gamma * following - data["values"][later, env]
                advantages[t, env] += weight * delta
                if data["terminated"][later, env] or data["truncated"][later, env]:
                    break
                weight *= gamma * lam
    return advantages


def drawn(seed: int, steps: int, envs: int, often: float) -> dict[str, Array]:
    generator = np.random.default_rng(seed)
    return {
        "rewards": generator.normal(size=(steps, envs)).astype(np.float32),
        "values": generator.normal(size=(steps + 1, envs)).astype(np.float32),
        "terminated": generator.random((steps, envs)) < often,
        "truncated": generator.random((steps, envs)) < often,
        "valid": generator.random((steps, envs)) >= often / 2,
        "final_values": generator.normal(size=(steps, envs)).astype(np.float32),
    }


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    steps=st.integers(1, 12),
    envs=st.integers(1, 4),
    often=st.sampled_from([0.0, 0.1, 0.4, 1.0]),
    gamma=st.sampled_from([0.0, 0.9, 0.99, 1.0]),
    lam=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_they_are_those_of_the_definition(
    seed: int, steps: int, envs: int, often: float, gamma: float, lam: float
) -> None:
    data = drawn(seed, steps, envs, often)
    found = generalized_advantages(**data, gamma=gamma, lam=lam)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, by_definition(data, gamma, lam), atol=2e-5)


def column(*numbers: float) -> Array:
    return np.array(numbers, np.float32)[:, None]


def flags(*numbers: int) -> Array:
    return np.array(numbers, bool)[:, None]


def one_env(**changes: Array) -> dict[str, Array]:
    """Four steps with rewards 1 2 3 4 and values 10 20 30 40, and a bootstrap value of 50."""
    return {
        "rewards": column(1, 2, 3, 4),
        "values": column(10, 20, 30, 40, 50),
        "terminated": flags(0, 0, 0, 0),
        "truncated": flags(0, 0, 0, 0),
        "valid": flags(1, 1, 1, 1),
        "final_values": column(0, 0, 0, 0),
        **changes,
    }


# By hand: every delta of the first row is 9 (e.g. 4 + 0.9 * 50 - 40), and 9 + 0.72 * 9 is 15.48.
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [23.504832, 20.1456, 15.48, 9.0]),
        ({"terminated": flags(0, 1, 0, 0)}, [-3.96, -18.0, 15.48, 9.0]),
        ({"truncated": flags(0, 1, 0, 0), "final_values": column(0, 7, 0, 0)}, [0.576, -11.7, 15.48, 9.0]),
        ({"valid": flags(1, 1, 0, 1)}, [15.48, 9.0, 0.0, 9.0]),
        ({"valid": flags(0, 1, 1, 1)}, [0.0, 20.1456, 15.48, 9.0]),
        ({"valid": flags(1, 1, 1, 0)}, [20.1456, 15.48, 9.0, 0.0]),
    ],
    ids=["one episode", "terminated", "truncated", "lost", "lost at the start", "lost at the end"],
)
def test_pinned_numbers(changes: dict[str, Array], expected: list[float]) -> None:
    found = generalized_advantages(**one_env(**changes), gamma=GAMMA, lam=LAM)[:, 0]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_truncated_episode_is_worth_what_its_final_observation_is_and_not_the_next_episode() -> None:
    data = one_env(truncated=flags(0, 1, 0, 0), final_values=column(0, 7, 0, 0))
    before = generalized_advantages(**data, gamma=GAMMA, lam=LAM)
    data["values"] = column(10, 20, 999, 999, 999)  # values of the next episode
    after = generalized_advantages(**data, gamma=GAMMA, lam=LAM)
    assert before[:2].tobytes() == after[:2].tobytes()
    data["final_values"] = column(0, 8, 0, 0)
    moved = generalized_advantages(**data, gamma=GAMMA, lam=LAM) - after
    np.testing.assert_allclose(moved[:, 0], [0.9 * 0.72, 0.9, 0, 0], rtol=1e-5)


def test_terminated_and_truncated_at_once_is_terminated() -> None:
    both = one_env(terminated=flags(0, 1, 0, 0), truncated=flags(0, 1, 0, 0), final_values=column(0, 7, 0, 0))
    alone = one_env(terminated=flags(0, 1, 0, 0))
    one, other = (generalized_advantages(**data, gamma=GAMMA, lam=LAM) for data in (both, alone))
    assert one.tobytes() == other.tobytes()


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), changed=st.integers(0, 3))
def test_no_value_crosses_environments(seed: int, changed: int) -> None:
    data = drawn(seed, 10, 4, 0.1)
    before = generalized_advantages(**data, gamma=GAMMA, lam=LAM)
    other = drawn(seed + 1, 10, 4, 0.5)
    for name, array in data.items():
        array[:, changed] = other[name][:, changed]
    after = generalized_advantages(**data, gamma=GAMMA, lam=LAM)
    others = [env for env in range(4) if env != changed]
    assert before[:, others].tobytes() == after[:, others].tobytes()
    assert before[:, changed].tobytes() != after[:, changed].tobytes()


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), cut=st.integers(1, 8), how=st.sampled_from(["terminated", "truncated", "valid"]))
def test_no_value_crosses_an_episode_or_a_lost_step(seed: int, cut: int, how: str) -> None:
    data = drawn(seed, 10, 3, 0.0)
    data[how][cut] = how != "valid"
    before = generalized_advantages(**data, gamma=GAMMA, lam=LAM)
    later = drawn(seed + 1, 10, 3, 0.0)
    for name in ("rewards", "values"):
        data[name][cut + 1 :] = later[name][cut + 1 :]
    after = generalized_advantages(**data, gamma=GAMMA, lam=LAM)
    assert np.array_equal(before[: cut + 1], after[: cut + 1])
    assert not np.array_equal(before[cut + 1 :], after[cut + 1 :])
    if how == "valid":
        assert not after[cut].any()


def test_the_inputs_are_left_as_they_were() -> None:
    data = drawn(1, 10, 3, 0.3)
    copies = {name: array.copy() for name, array in data.items()}
    generalized_advantages(**data, gamma=GAMMA, lam=LAM)
    assert all(np.array_equal(data[name], copies[name]) for name in data)
