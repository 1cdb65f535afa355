"""`fleet.state()` and `fleet.restore()`: a restored fleet continues with the same bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import envfleet
from tests.fleet.backends import same
from tests.fleet.continuation import is_plain
from tests.fleet.simulators import Counter, Holds, Nested, Talks, sample_task


def actions_for(fleet: envfleet.Fleet, steps: int) -> list[Any]:
    fleet.action_space.seed(4)
    return [fleet.action_space.sample() for _ in range(steps)]


@pytest.mark.parametrize("env", ["CartPole-v1", "Taxi-v4", "HalfCheetah-v5", "nested"])
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_continues_exactly_on_another_backend(env: str, mode: str) -> None:
    made: Any = Nested if env == "nested" else env
    settings: dict[str, Any] = {"group_size": 2, "seed": 9, "autoreset": mode, "tasks": sample_task}
    one = envfleet.make(made, 5, backend="processes", workers=2, **settings)
    one.reset()
    actions = actions_for(one, 80)
    for batch in actions[:30]:
        one.step(batch)
    saved = one.state()
    assert is_plain(saved)
    expected = [one.step(batch) for batch in actions[30:]]
    one.close()
    other = envfleet.make(made, 5, backend="threads", workers=3, **settings)
    observations = other.restore(saved)
    assert same(observations, _last(saved, observations))
    received = [other.step(batch) for batch in actions[30:]]
    other.close()
    assert same(expected, received)


def _last(saved: dict[str, Any], observations: Any) -> Any:
    """Return the saved observations in the form that the fleet returns."""
    return saved["observations"][""] if isinstance(observations, np.ndarray) else observations


def test_state_of_another_fleet_is_refused() -> None:
    fleet = envfleet.make("CartPole-v1", 4, backend="sequential")
    fleet.reset()
    saved = fleet.state()
    fleet.close()
    other = envfleet.make("CartPole-v1", 3, backend="sequential")
    with pytest.raises(envfleet.StateError, match="4 environments, expected version 1 and 3"):
        other.restore(saved)
    other.close()
    cheetah = envfleet.make("Pendulum-v1", 4, backend="sequential")
    with pytest.raises(envfleet.StateError):
        cheetah.restore(saved)
    cheetah.close()


def test_what_cannot_be_saved_says_so(backend: dict[str, Any]) -> None:
    fleet = envfleet.make(Holds, 4, group_size=2, **backend)
    fleet.reset()
    with pytest.raises(envfleet.StateError, match="engine"):
        fleet.state()
    fleet.step(fleet.action_space.sample())  # nothing is lost
    fleet.close()
    text = envfleet.make(Talks, 2, backend="sequential")
    text.reset()
    with pytest.raises(envfleet.StateError, match="Text"):
        text.state()
    text.close()


def test_a_failed_restore_makes_a_reset_necessary(backend: dict[str, Any]) -> None:
    with envfleet.make(Nested, 4, group_size=2, **backend) as fleet:
        fleet.reset()
        saved = fleet.state()
        saved["environments"][3]["simulator"] = {}
        with pytest.raises(envfleet.StateError):
            fleet.restore(saved)
        with pytest.raises(envfleet.ProtocolError, match=r"call reset\(\) first"):
            fleet.step(fleet.action_space.sample())
        fleet.reset()
        fleet.step(fleet.action_space.sample())


def test_restored_ends_are_over_after_the_next_step() -> None:
    with envfleet.make(lambda: Counter(length=2), 4, backend="sequential") as fleet:
        actions = np.zeros(4, np.int64)
        fleet.reset()
        for _ in range(2):
            fleet.step(actions)
        saved = fleet.state()
        for _ in range(2):
            fleet.step(actions)  # resets, and steps
        fleet.restore(saved)
        fleet.step(actions)
        assert fleet._exchange.ended_envs(fleet._exchange.all) == []
