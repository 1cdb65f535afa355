"""Code written for Gymnasium's vector environments finds the same calls, attributes and errors here."""

from __future__ import annotations

import multiprocessing
import threading
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import envfleet
from tests.fleet.backends import BACKENDS, same
from tests.fleet.simulators import Counter

ACTIONS = np.zeros(4, np.int64)


class Refuses(Counter):
    """Raises a built-in exception."""

    def step(self, action: Any) -> Any:
        if action == 1:
            raise KeyError("door")
        return super().step(action)


class Late(Counter):
    """Its steps wait until `gate` opens."""

    gate = threading.Event()

    def step(self, action: Any) -> Any:
        self.gate.wait(30)
        return super().step(action)


def test_reset_in_two_parts(backend: dict[str, Any]) -> None:
    fleet = envfleet.make(Counter, 4, group_size=2, **backend)
    expected = fleet.reset(seed=3)
    fleet.reset_async(seed=3)
    with pytest.raises(gymnasium.error.AlreadyPendingCallError, match="reset_wait") as pending:
        fleet.step_async(ACTIONS)
    assert pending.value.name == "reset" and isinstance(pending.value, envfleet.ProtocolError)
    assert same(fleet.reset_wait(timeout=30), expected)
    fleet.close()


def test_errors_are_those_of_gymnasium_too() -> None:
    fleet = envfleet.make(Counter, 4, backend="sequential")
    with pytest.raises(gymnasium.error.ResetNeeded):
        fleet.step(ACTIONS)
    with pytest.raises(gymnasium.error.NoAsyncCallError, match=r"call reset_async\(\) first") as missing:
        fleet.reset_wait()
    assert missing.value.name == "reset"
    fleet.reset()
    with pytest.raises(gymnasium.error.NoAsyncCallError):
        fleet.step_wait()
    fleet.step_async(ACTIONS)
    with pytest.raises(gymnasium.error.AlreadyPendingCallError):
        fleet.reset_async()
    fleet.step_wait()
    with pytest.raises(TypeError):
        fleet.step(0)
    fleet.close()
    with pytest.raises(gymnasium.error.ClosedEnvironmentError):
        fleet.reset()


def test_a_misplaced_call_is_named_as_it_was_made() -> None:
    with envfleet.make(Counter, 4, backend="sequential") as fleet:
        fleet.reset()
        fleet.step_async(ACTIONS)
        calls = {
            "step": lambda: fleet.step(ACTIONS),
            "step_async": lambda: fleet.step_async(ACTIONS),
            "reset": fleet.reset,
            "reset_async": fleet.reset_async,
        }
        for name, call in calls.items():
            with pytest.raises(envfleet.ProtocolError, match=rf"^{name}\(\) was called while the fleet is waiting"):
                call()
        assert fleet.step_wait()[0][:, 0].tolist() == [1] * 4


@pytest.mark.parametrize("kind", [TimeoutError, multiprocessing.TimeoutError, envfleet.EnvfleetError])
def test_a_wait_that_timed_out_can_be_repeated(kind: Any) -> None:
    Late.gate.clear()
    fleet = envfleet.make(Late, 4, backend="threads", workers=2)
    fleet.reset()
    fleet.step_async(ACTIONS)
    with pytest.raises(kind, match=r"step_wait\(\) has timed out after 0.01 s"):
        fleet.step_wait(timeout=0.01)
    Late.gate.set()
    assert fleet.step_wait(timeout=30)[0][:, 0].tolist() == [1] * 4
    fleet.close()


@pytest.mark.parametrize("name", ["sequential", "threads", "spawn"])
def test_what_an_environment_raises_can_be_caught_as_it_is(name: str) -> None:
    fleet = envfleet.make(Refuses, 4, group_size=2, **BACKENDS[name])
    fleet.reset(seed=5)
    with pytest.raises(KeyError) as caught:
        fleet.step(np.array([0, 0, 1, 0]))
    assert isinstance(caught.value, envfleet.EnvError)
    assert caught.value.context.env_index == 2 and "raise KeyError" in str(caught.value)
    with pytest.raises(AttributeError):
        fleet.get_attr("nonsense")
    fleet.close()


def test_arguments_that_cannot_be_sent_leave_the_fleet_as_it_was() -> None:
    with envfleet.make(Counter, 4, **BACKENDS["spawn"]) as fleet:
        expected = fleet.reset(seed=3)
        with pytest.raises(TypeError, match="pickle"):
            fleet.reset(options={"lock": threading.Lock()})
        with pytest.raises(TypeError, match="pickle"):
            fleet.call("step", threading.Lock())
        assert same(fleet.reset(seed=3), expected)
        assert fleet.statistics().restarts == 0


def late_maker() -> Any:
    raise TimeoutError("the licence server does not answer")


@pytest.mark.parametrize("name", ["sequential", "threads", "fork"])
def test_a_timeout_of_the_environment_itself_is_no_hang(name: str) -> None:
    with pytest.raises(TimeoutError, match="licence server") as caught:
        envfleet.make(late_maker, 2, **BACKENDS[name])
    assert not isinstance(caught.value, envfleet.EnvHungError)


@pytest.mark.parametrize("name", ["sequential", "fork"])
def test_attributes_of_gymnasium(name: str) -> None:
    fleet = envfleet.make("CartPole-v1", 4, group_size=2, autoreset="same_step", **BACKENDS[name])
    assert fleet.autoreset_mode is fleet.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    reference = SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 4)
    for env in (fleet, reference):
        env.reset(seed=42)
        env.reset()
    assert fleet.np_random_seed == reference.np_random_seed == (42, 43, 44, 45)
    drawn = [generator.random() for generator in fleet.np_random]
    assert drawn == [generator.random() for generator in reference.np_random]
    fleet.close()
    reference.close()


def test_environments_of_a_sequential_fleet_are_within_reach() -> None:
    fleet = envfleet.make("CartPole-v1", 4, backend="sequential", group_size=2)
    fleet.reset(seed=1)
    fleet.step(ACTIONS)
    assert [env.unwrapped.gravity for env in fleet.envs] == [9.8] * 4  # type: ignore[attr-defined]
    assert [env.get_wrapper_attr("_elapsed_steps") for env in fleet.envs] == [1] * 4
    fleet.envs[2].unwrapped.gravity = 1.0  # type: ignore[attr-defined]
    assert fleet.get_attr("gravity") == (9.8, 9.8, 1.0, 9.8)
    fleet.close()
    with pytest.raises(AttributeError, match="closed"):
        fleet.envs  # noqa: B018


def test_environments_elsewhere_are_not() -> None:
    fleet = envfleet.make(Counter, 2, backend="threads", workers=2)
    assert not hasattr(fleet, "envs")
    with pytest.raises(AttributeError, match=r"backend 'threads'.*\nhint: backend='sequential'"):
        fleet.envs  # noqa: B018
    fleet.close()
