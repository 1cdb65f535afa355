"""Numbers in infos: which values count as numbers, and how an episode aggregates them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from envfleet.fleet.episode_numbers import EpisodeNumbers, InfoKey, followed, means, number_of, successes
from envfleet.fleet.make import Hosting, build_fleet
from envfleet.fleet.makers import makers_of
from envfleet.fleet.spec import GroupSettings
from tests.fleet.simulators import Counting


@pytest.mark.parametrize(
    ("value", "number"),
    [
        *[(3, 3.0), (True, 1.0), (0.5, 0.5), (np.float32(0.5), 0.5), (np.bool_(False), 0.0), (np.array([7]), 7.0)],
        *[(torch.tensor(2.0), 2.0), (np.array(4, np.int8), 4.0)],
    ],
)
def test_numbers(value: Any, number: float) -> None:
    assert number_of(value) == number


@pytest.mark.parametrize(
    "value", ["3", np.array("3"), np.ones(2), torch.ones(2), {}, [1.0], math.inf, math.nan, 10**400, 1j, object()]
)
def test_no_numbers(value: Any) -> None:
    assert math.isnan(number_of(value))


def test_keys() -> None:
    assert InfoKey.of("term") == ("term", "mean")
    assert InfoKey.of("is_success") == ("is_success", "last")
    assert InfoKey.of("a:b") == ("a:b", "mean")
    assert [InfoKey.of(key).metric for key in ("x", "x:mean", "x:sum", "x:last")] == ["x", "x", "x_sum", "x_last"]
    assert InfoKey.of("a.b").number_in({"a": {"b": 2}}) == 2.0
    assert InfoKey.of("a.b").number_in({"a.b": 1, "a": {"b": 2}}) == 1.0
    assert math.isnan(InfoKey.of("a.b").number_in({"a": 3}))
    assert followed(("x", "success")) == ("is_success", "success", "x")


def test_an_episode() -> None:
    numbers = EpisodeNumbers(("x", "x:sum", "x:last", "y", "success"), 2)
    for env in (0, 1):
        numbers.begin(env)
    infos: list[dict[str, Any]] = [{"x": 1}, {"x": "?"}, {}, {"x": 4, "success": True}]
    for info in infos:
        numbers.add(1, info)
    expected = [2.5, 5.0, 4.0, math.nan, 1.0]
    np.testing.assert_equal(numbers.end(1, infos[-1]), expected)
    np.testing.assert_equal(numbers.end(0, {}), [math.nan] * 5)
    other = EpisodeNumbers(("z", "x"), 1)  # other keys: only the shared ones are restored
    other.restore(0, numbers.state(1))
    np.testing.assert_equal(other.end(0, {}), [math.nan, 2.5])
    numbers.begin(1)
    np.testing.assert_equal(numbers.end(1, {}), [math.nan] * 5)


def test_only_sums_need_every_step() -> None:
    assert not EpisodeNumbers(("is_success", "success", "x:last"), 1).needs_every_step
    assert EpisodeNumbers(("x",), 1).needs_every_step


def test_means_over_episodes() -> None:
    nan = math.nan
    numbers = {"is_success": [nan, nan], "success": [1.0, nan], "x": [1.0, nan], "x:sum": [1.0, 3.0], "y": [nan, nan]}
    assert means(numbers) == {"x": 1.0, "x_sum": 2.0}
    assert successes(numbers) == [True, False]
    assert successes({"is_success": [nan], "success": []}) is None


@pytest.mark.parametrize("backend", ["sequential", "threads", "processes"])
@pytest.mark.parametrize("autoreset", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_a_fleet_follows_them(backend: str, autoreset: AutoresetMode) -> None:
    settings = GroupSettings(1, autoreset, log_info=("count",))
    with build_fleet(makers_of(Counting, 3), settings, Hosting(backend, workers=2)) as fleet:
        fleet.reset()
        ended = {}
        for _ in range(3):
            _, _, terminated, _, _ = fleet.step(np.zeros(3, np.int64))
            for env in np.flatnonzero(terminated):
                ended.setdefault(int(env), fleet.last_step.episode_numbers[env, 0])
    assert ended == {0: 1.0, 1: 1.5, 2: 2.0}
