"""Values returned by `step`: observations, rewards and flags, compared with the spaces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from envfleet.conformance.values import mismatch
from tests.conformance.worlds import ContinuousWalk, Walk, assert_problem, check, only_problem, returning

EXPECTED = "expected Box(-1000.0, 1000.0, (2,), float32)"


@pytest.mark.parametrize(
    ("returned", "what"),
    [
        (lambda result: None, "step returned None, expected a tuple of 5"),
        (lambda result: result[:3], "step returned a tuple of 3, expected a tuple of 5"),
        (lambda result: (*result[:3], result[4]), "step returned a tuple of 4 (the API of old gym)"),
    ],
)
def test_step_returns_no_five_values(returned: Any, what: str) -> None:
    class Short(Walk):
        def step(self, action: Any) -> Any:
            return returned(super().step(action))

    assert_problem(check(Short), "error", what, "(observation, reward, terminated, truncated, info)")


@pytest.mark.parametrize(
    ("observation", "what", "fix"),
    [
        (None, "NoneType None", "np.asarray"),
        (np.zeros(3, np.float32), "shape (3,) (shape (2,) was declared)", "declare the shape"),
        (np.zeros(2, np.complex64), "dtype complex64 (dtype float32 was declared)", ".astype(np.float32)"),
        (np.array([0, np.nan], np.float32), "NaN at index (1,)", "division by zero"),
        (np.array([0, 1001], np.float32), "1001.0 at index (1,), which is outside [-1000.0, 1000.0]", "clip"),
        (np.array([-np.inf, 0], np.float32), "-inf at index (0,)", "clip"),
    ],
)
def test_observations_outside_their_space(observation: Any, what: str, fix: str) -> None:
    report = check(returning(observation=lambda env: observation))
    assert_problem(report, "error", f"observation: {EXPECTED}, received {what}", fix)
    assert "returned by step 1)" in report.problems[0].what


@pytest.mark.parametrize(
    ("observation", "what", "fix"),
    [
        ([0.0, 0.0], "list [0.0, 0.0]", "np.asarray"),
        (np.zeros(2), "dtype float64 (dtype float32 was declared)", ".astype(np.float32)"),
        (np.array([0, np.nextafter(1000, 2000, dtype=np.float32)], np.float32), "1000.00006", "clip"),
    ],
)
def test_observations_that_a_fleet_accepts_are_warnings(observation: Any, what: str, fix: str) -> None:
    report = check(returning(observation=lambda env: observation))
    assert report.ok
    assert_problem(report, "warning", f"observation: {EXPECTED}, received {what}", fix)
    assert "a fleet accepts it with a warning" in report.problems[0].fix


def test_a_reward_in_an_array_of_one_element_is_a_warning() -> None:
    report = check(returning(reward=lambda env: np.array([1.0])))
    assert_problem(report, "warning", "the reward is array([1.]) (a ndarray), expected a number", "float(reward)")


def test_a_warning_does_not_hide_an_error_with_the_same_fix() -> None:
    report = check(returning(reward=lambda env: None if env.taken == 3 else np.array([1.0])))
    assert not report.ok
    assert_problem(report, "error", "the reward is None (None), expected a number", "float(reward)")


def test_the_step_of_the_first_bad_observation_is_named() -> None:
    late = np.array([0, 1001], np.float32)
    report = check(returning(observation=lambda env: late if env.taken == 7 else env.observe()))
    assert "(returned by step 7)" in only_problem(report)[1]


@pytest.mark.parametrize(
    ("space", "value", "what"),
    [
        (spaces.Discrete(3), 3, "x is 3, expected a member of Discrete(3)"),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 3]), "3 at index (1,), which is outside [0, 2]"),
        (spaces.MultiBinary(2), np.array([0, 2], np.int8), "2 at index (1,), which is outside [0, 1]"),
        (spaces.Box(0, 1, ()), 2.0, "x: expected Box(0.0, 1.0, (), float32), received 2.0, which is out of its bounds"),
        (spaces.Dict({"a": spaces.Discrete(2)}), 1, "x is an int, expected a dict with the keys ['a']"),
        (spaces.Dict({"a": spaces.Discrete(2)}), {"b": 1}, "x has the keys ['b'], expected ['a']"),
        (spaces.Dict({"a": spaces.Discrete(2)}), {"a": 5}, "x['a'] is 5"),
        (spaces.Tuple([spaces.Discrete(2)]), [1], "x is a list, expected a tuple of 1"),
        (spaces.Tuple([spaces.Discrete(2)]), (1, 1), "x is a tuple of 2, expected a tuple of 1"),
        (spaces.Tuple([spaces.Discrete(2)]), (5,), "x[0] is 5"),
    ],
)
def test_a_mismatch_names_the_place_the_received_and_the_expected(
    space: spaces.Space[Any], value: Any, what: str
) -> None:
    found = mismatch(space, value, "x")
    assert found is not None
    assert what in found.what


@pytest.mark.parametrize("reward", [1, True, np.float32(1), np.int64(2), np.float64(0.5)])
def test_numbers_of_all_types_are_rewards(reward: Any) -> None:
    assert check(returning(reward=lambda env: reward)).problems == ()


@pytest.mark.parametrize(
    ("reward", "what", "fix"),
    [
        (np.nan, "the reward is nan (step 1), expected a finite number", "division"),
        (np.inf, "the reward is inf", "division"),
        (np.array([1.0, 2.0]), "the reward is array([1., 2.]) (a ndarray), expected a number", "float(reward)"),
        (None, "the reward is None", "float(reward)"),
    ],
)
def test_rewards_that_are_no_finite_numbers(reward: Any, what: str, fix: str) -> None:
    assert_problem(check(returning(reward=lambda env: reward)), "error", what, fix)


@pytest.mark.parametrize("name", ["terminated", "truncated"])
def test_flags_that_are_no_bools(name: str) -> None:
    report = check(returning(**{name: lambda env: int(env.taken >= 10)}))
    assert_problem(report, "error", f"{name} is 0 (an int), expected a bool", f"bool({name})")


def test_flags_that_cannot_be_bools() -> None:
    report = check(returning(terminated=lambda env: np.zeros(2, bool)))
    assert_problem(report, "error", "terminated is array([False, False])", "bool(terminated)")


def test_numpy_bools_are_bools() -> None:
    assert check(returning(terminated=lambda env: np.bool_(env.taken >= 10))).problems == ()


def test_an_action_that_is_changed() -> None:
    class Clipping(ContinuousWalk):
        def step(self, action: Any) -> Any:
            action *= 0.5
            return super().step(action)

    assert_problem(check(Clipping), "error", "step changed its action from array(", "action.copy()")


def test_an_observation_that_changes_afterwards() -> None:
    class Reusing(Walk):
        def __init__(self) -> None:
            super().__init__()
            self._buffer = np.zeros(2, np.float32)

        def observe(self) -> Any:
            self._buffer[:] = super().observe()
            return self._buffer

    assert_problem(check(Reusing), "warning", "both are the same array", ".copy()")


def test_an_observation_that_changes_inside_a_dict() -> None:
    class Reusing(Walk):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = spaces.Dict({"walk": self.observation_space})
            self._buffer = np.zeros(2, np.float32)

        def observe(self) -> Any:
            self._buffer[:] = super().observe()
            return {"walk": self._buffer}

    assert_problem(check(Reusing), "warning", "both are the same array", ".copy()")
