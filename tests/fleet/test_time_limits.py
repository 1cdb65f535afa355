"""Groups count Gymnasium's own time limits themselves, without a visible difference."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import OrderEnforcing

import envfleet
from tests.fleet.limited import CallsItsOwn, Endless, limited

ACTIONS = np.zeros(4, np.int64)


class RenamedFields(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A time limit as another Gymnasium version might write it."""

    def __init__(self, env: gymnasium.Env[Any, Any], limit: int) -> None:
        super().__init__(env)
        self._limit, self._count = limit, 0

    def reset(self, **kwargs: Any) -> Any:
        self._count = 0
        return super().reset(**kwargs)

    def step(self, action: Any) -> Any:
        self._count += 1
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, self._count >= self._limit, info


def make(env: Any, backend: dict[str, Any], **settings: Any) -> envfleet.Fleet:
    return envfleet.make(env, 4, group_size=2, seed=10, **{**backend, **settings})


def lengths(fleet: envfleet.Fleet, steps: int) -> list[int]:
    """Return the lengths of the episodes of environment 0, measured from their truncations."""
    fleet.reset()
    found, since = [], 0
    for _ in range(steps):
        since += 1
        _, _, terminated, truncated, _ = fleet.step(ACTIONS)
        assert not terminated.any()
        if truncated[0]:
            found.append(since)
            since = -1  # the next step only resets
    return found


@pytest.mark.parametrize("limits", [(5,), (5, 9), (9, 5)])
def test_the_shortest_limit_ends_every_episode(limits: tuple[int, ...], backend: dict[str, Any]) -> None:
    fleet = make(lambda: limited(*limits), backend)
    assert lengths(fleet, 20) == [5, 5, 5]
    assert fleet.statistics().lengths == [5] * 12
    fleet.close()


@pytest.mark.parametrize("backend", ["sequential", "threads"])
def test_a_limit_without_the_fields_that_we_know_is_stepped_through(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("envfleet.fleet.env_handle.TimeLimit", RenamedFields)
    fleet = make(lambda: OrderEnforcing(RenamedFields(OrderEnforcing(Endless()), 5)), {"backend": backend})
    assert lengths(fleet, 20) == [5, 5, 5]
    assert fleet.call("get_wrapper_attr", "_count")[0] == 2  # a call updates the counts of all limits first
    fleet.close()


def test_a_limit_of_another_kind_is_stepped_through(backend: dict[str, Any]) -> None:
    fleet = make(lambda: CallsItsOwn(Endless(), 3), backend)
    fleet.reset()
    results = [fleet.step(ACTIONS) for _ in range(3)]
    assert all(result[1].tolist() == [7.0] * 4 for result in results)
    assert [result[3].all() for result in results] == [False, False, True]
    fleet.close()


def test_a_step_put_in_its_place_is_the_one_that_runs(backend: dict[str, Any]) -> None:
    def patched() -> Any:
        env: Any = limited(5)
        env.step = lambda action: (np.zeros(3, np.float32), 3.0, False, False, {})
        return env

    fleet = make(patched, {**backend, "validate": False})
    fleet.reset()
    assert fleet.step(ACTIONS)[1].tolist() == [3.0] * 4
    fleet.close()


def test_limits_know_how_far_the_episode_is_when_they_are_asked(backend: dict[str, Any]) -> None:
    fleet = make(lambda: limited(5, 9), backend)
    fleet.reset()
    seen = []
    for _ in range(7):
        fleet.step(ACTIONS)
        seen.append(fleet.get_attr("_elapsed_steps")[0])
    assert seen == [1, 2, 3, 4, 5, 0, 1]
    fleet.close()


def test_resetting_some_does_not_count_as_a_step_of_the_others(backend: dict[str, Any]) -> None:
    fleet = make(lambda: limited(5), backend, autoreset="disabled")
    fleet.reset()
    for _ in range(2):
        fleet.step(ACTIONS)
    fleet.reset(options={"reset_mask": np.array([True, False, True, False])})
    ends = [fleet.step(ACTIONS)[3].tolist() for _ in range(3)]
    assert ends == [[False] * 4, [False] * 4, [False, True, False, True]]
    assert fleet.statistics().lengths == [5, 5]
    fleet.close()


def test_a_restored_episode_ends_when_it_would_have(backend: dict[str, Any]) -> None:
    fleet = make(lambda: gymnasium.make("CartPole-v1", max_episode_steps=6), backend)
    fleet.reset()
    for _ in range(4):
        fleet.step(ACTIONS % 2)
    state = fleet.state()
    assert state["environments"][0]["simulator"]
    rest = [fleet.step(np.arange(4) % 2)[3].tolist() for _ in range(3)]
    fleet.restore(state)
    assert [fleet.step(np.arange(4) % 2)[3].tolist() for _ in range(3)] == rest
    assert rest[1] == [True] * 4
    fleet.close()
