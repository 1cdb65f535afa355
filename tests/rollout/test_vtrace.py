"""V-trace matches the published definition; on-policy it gives the ordinary targets."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envfleet.rollout.advantages import generalized_advantages
from envfleet.rollout.vtrace import vtrace
from tests.rollout.test_advantages import column, drawn, flags, one_env

Array = np.ndarray[Any, Any]
GAMMA, LAM = 0.9, 0.8


def with_ratios(data: dict[str, Array], seed: int) -> dict[str, Array]:
    ratios = np.random.default_rng(seed).normal(size=data["rewards"].shape).astype(np.float32)
    return {**data, "log_ratios": ratios}


def by_definition(
    data: dict[str, Array], gamma: float, lam: float, rho_limit: float, c_limit: float
) -> tuple[Array, Array]:
    """Equation 1 of the paper, target by target: a sum of corrected temporal differences, each with its product of c.

    v(s) = V(s) + sum over t >= s of gamma^(t-s) * (c_s ... c_(t-1)) * rho_t * (r_t + gamma V(t+1) - V(t))
    """
    steps, envs = data["rewards"].shape
    targets, advantages = np.zeros((steps, envs)), np.zeros((steps, envs))

    def bootstrap(t: int, env: int) -> float:
        if data["terminated"][t, env]:
            return 0.0
        return float(data["final_values"][t, env] if data["truncated"][t, env] else data["values"][t + 1, env])

    def last(t: int, env: int) -> bool:
        """Whether nothing follows step t: its episode ended, the next step never happened, or the rollout is over."""
        ended = data["terminated"][t, env] or data["truncated"][t, env]
        return bool(ended or t + 1 == steps or not data["valid"][t + 1, env])

    for env in range(envs):
        for s in range(steps):
            targets[s, env] = data["values"][s, env]
            if not data["valid"][s, env]:
                continue
            weight = 1.0
            for t in range(s, steps):
                ratio = math.exp(data["log_ratios"][t, env])
                delta = data["rewards"][t, env] + gamma * bootstrap(t, env) - data["values"][t, env]
                targets[s, env] += weight * min(rho_limit, ratio) * delta
                if last(t, env):
                    break
                weight *= gamma * lam * min(c_limit, ratio)
        for s in range(steps):
            if data["valid"][s, env]:
                following = bootstrap(s, env)
                if not last(s, env):
                    following = lam * targets[s + 1, env] + (1.0 - lam) * following
                advantages[s, env] = data["rewards"][s, env] + gamma * following - data["values"][s, env]
    return targets, advantages


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    steps=st.integers(1, 12),
    envs=st.integers(1, 4),
    often=st.sampled_from([0.0, 0.1, 0.4, 1.0]),
    gamma=st.sampled_from([0.0, 0.9, 1.0]),
    lam=st.sampled_from([0.0, 0.5, 1.0]),
    limits=st.sampled_from([(1.0, 1.0), (2.0, 1.0), (0.5, 1.5)]),
)
def test_it_is_that_of_the_definition(
    seed: int, steps: int, envs: int, often: float, gamma: float, lam: float, limits: tuple[float, float]
) -> None:
    data = with_ratios(drawn(seed, steps, envs, often), seed)
    found = vtrace(**data, gamma=gamma, lam=lam, rho_limit=limits[0], c_limit=limits[1])
    targets, advantages = by_definition(data, gamma, lam, *limits)
    assert found.targets.dtype == found.advantages.dtype == np.float32
    np.testing.assert_allclose(found.targets, targets, atol=5e-5)
    np.testing.assert_allclose(found.advantages, advantages, atol=5e-5)


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    often=st.sampled_from([0.0, 0.1, 0.4]),
    lam=st.sampled_from([0.0, 0.8, 1.0]),
)
def test_on_policy_it_equals_the_generalized_advantage(seed: int, often: float, lam: float) -> None:
    data = drawn(seed, 12, 3, often)
    expected = generalized_advantages(**data, gamma=GAMMA, lam=lam)
    found = vtrace(**data, log_ratios=np.zeros((12, 3), np.float32), gamma=GAMMA, lam=lam)
    np.testing.assert_allclose(found.advantages, expected, atol=1e-5)
    np.testing.assert_allclose(found.targets, expected + data["values"][:-1], atol=1e-5)


def test_on_policy_with_lambda_1_a_target_is_the_discounted_return() -> None:
    found = vtrace(**one_env(), log_ratios=column(0, 0, 0, 0), gamma=GAMMA, lam=1.0)
    returns = [1 + 0.9 * (2 + 0.9 * (3 + 0.9 * (4 + 0.9 * 50))), 2 + 0.9 * (3 + 0.9 * (4 + 0.9 * 50)), 47.1, 49.0]
    np.testing.assert_allclose(found.targets[:, 0], returns, rtol=1e-6)


HALF, DOUBLE = math.log(0.5), math.log(2.0)


# By hand: every delta of `one_env` is 9 (e.g. 4 + 0.9 * 50 - 40), the ratios are 1, 0.5, 2 and 1, limited to 1.
# From the end, v - V: 9; 9 + 0.72 * 9 = 15.48; 0.5 * 9 + 0.72 * 0.5 * 15.48 = 10.0728; 9 + 0.72 * 10.0728 = 16.252416.
@pytest.mark.parametrize(
    ("changes", "corrections", "advantages"),
    [
        ({}, [16.252416, 10.0728, 15.48, 9.0], [16.252416, 20.1456, 15.48, 9.0]),
        ({"terminated": flags(0, 1, 0, 0)}, [2.52, -9.0, 15.48, 9.0], [2.52, -18.0, 15.48, 9.0]),
        (
            {"truncated": flags(0, 1, 0, 0), "final_values": column(0, 7, 0, 0)},
            [4.788, -5.85, 15.48, 9.0],
            [4.788, -11.7, 15.48, 9.0],
        ),
        ({"valid": flags(1, 1, 0, 1)}, [12.24, 4.5, 0.0, 9.0], [12.24, 9.0, 0.0, 9.0]),
        ({"valid": flags(1, 1, 1, 0)}, [14.5728, 7.74, 9.0, 0.0], [14.5728, 15.48, 9.0, 0.0]),
    ],
    ids=["one episode", "terminated", "truncated", "lost", "lost at the end"],
)
def test_pinned_numbers(changes: dict[str, Array], corrections: list[float], advantages: list[float]) -> None:
    data = one_env(**changes)
    found = vtrace(**data, log_ratios=column(0, HALF, DOUBLE, 0), gamma=GAMMA, lam=LAM)
    np.testing.assert_allclose(found.targets[:, 0] - data["values"][:-1, 0], corrections, atol=1e-5)
    np.testing.assert_allclose(found.advantages[:, 0], advantages, atol=1e-5)


def test_an_action_that_the_new_policy_never_takes_leaves_its_value_as_it_is() -> None:
    found = vtrace(**one_env(), log_ratios=column(0, -100, 0, 0), gamma=GAMMA, lam=1.0)
    assert found.targets[1, 0] == 20.0  # the value of its state: nothing is learned from what followed


def test_a_huge_ratio_is_limited_without_overflow() -> None:
    limited = vtrace(**one_env(), log_ratios=column(800, 800, 800, 800), gamma=GAMMA, lam=1.0)
    on_policy = vtrace(**one_env(), log_ratios=column(0, 0, 0, 0), gamma=GAMMA, lam=1.0)
    assert limited.targets.tobytes() == on_policy.targets.tobytes()


def test_the_ratio_of_a_lost_step_does_not_matter() -> None:
    data = one_env(valid=flags(1, 1, 0, 1))
    some, other = (
        vtrace(**data, log_ratios=column(0, HALF, ratio, 0), gamma=GAMMA, lam=LAM) for ratio in (0.0, math.nan)
    )
    assert some.targets.tobytes() == other.targets.tobytes()
    assert some.advantages.tobytes() == other.advantages.tobytes()


def test_the_inputs_are_left_as_they_were() -> None:
    data = with_ratios(drawn(1, 10, 3, 0.3), 1)
    copies = {name: array.copy() for name, array in data.items()}
    vtrace(**data, gamma=GAMMA, lam=LAM)
    assert all(np.array_equal(data[name], copies[name]) for name in data)
