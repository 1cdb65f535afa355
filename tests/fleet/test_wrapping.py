"""Wrappers that `make` applies to every environment, inside its worker."""

from __future__ import annotations

import functools
from typing import Any

import gymnasium
import pytest
from gymnasium.wrappers import FrameStackObservation, TimeLimit, TransformReward

import envfleet
from tests.fleet.backends import BACKENDS, same, trace
from tests.fleet.simulators import Counter


@pytest.mark.parametrize("name", ["sequential", "spawn"])
def test_the_first_is_innermost(name: str) -> None:
    wrappers = [
        functools.partial(TimeLimit, max_episode_steps=7),
        lambda env: TransformReward(env, lambda reward: reward / 2),
        lambda env: FrameStackObservation(env, 2),
    ]

    def by_hand() -> gymnasium.Env[Any, Any]:
        env = gymnasium.make("Pendulum-v1", g=9.0)
        for wrapper in wrappers:
            env = wrapper(env)
        return env

    fleet = envfleet.make("Pendulum-v1", 4, env_kwargs={"g": 9.0}, wrappers=wrappers, group_size=2, **BACKENDS[name])
    expected = envfleet.make(by_hand, 4, backend="sequential")
    assert fleet.single_observation_space.shape == (2, 3)
    assert same(trace(fleet, 20, seed=3), trace(expected, 20, seed=3))
    fleet.close()
    expected.close()


def narrow(env: Any) -> Any:
    raise ValueError(f"cannot narrow {env.observation_space}")


@pytest.mark.parametrize("name", ["sequential", "fork"])
def test_a_wrapper_that_raises_is_named(name: str) -> None:
    with pytest.raises(ValueError, match="cannot narrow") as caught:
        envfleet.make(Counter, 2, wrappers=[ClipNothing, narrow], **BACKENDS[name])
    assert isinstance(caught.value, envfleet.EnvError)
    assert "the wrapper 'narrow', number 2 of 2, raised this" in str(caught.value)


class ClipNothing(gymnasium.Wrapper[Any, Any, Any, Any]):
    pass


def test_what_is_no_wrapper_is_refused() -> None:
    with pytest.raises(envfleet.EnvError, match="wrapper 'print', number 1 of 1, returned NoneType"):
        envfleet.make(Counter, 2, wrappers=[print], backend="sequential")
    with pytest.raises(envfleet.SettingsError, match=r"wrappers\[0\] is 'TimeLimit', expected a function"):
        envfleet.make(Counter, 2, wrappers=["TimeLimit"], backend="sequential")  # type: ignore[list-item]
    with pytest.raises(envfleet.SettingsError, match="expected a list of functions"):
        envfleet.make(Counter, 2, wrappers=ClipNothing, backend="sequential")  # type: ignore[arg-type]
