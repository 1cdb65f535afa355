"""Environments whose observation spaces differ in their bounds, as Gymnasium's `observation_mode` allows."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

import envfleet
from tests.fleet.backends import BACKENDS, same, trace


class Bounded(gymnasium.Env[Any, Any]):
    """Observes its own bound, and more than that after action 1."""

    action_space = spaces.Discrete(2)

    def __init__(self, bound: int) -> None:
        self.bound = bound
        box = spaces.Box(0, bound, (3,), np.float32)
        self.observation_space = spaces.Dict({"box": box, "choice": spaces.Discrete(bound + 1)})

    def observe(self, over: int = 0) -> Any:
        return {"box": np.full(3, self.bound + over, np.float32), "choice": self.bound}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observe(int(action)), 0.0, False, False, {}


BOUNDS = [{"bound": bound} for bound in (1, 2, 3, 9)]


def reference(mode: Any) -> SyncVectorEnv[Any, Any, Any]:
    makers = [lambda bound=kwargs["bound"]: Bounded(bound) for kwargs in BOUNDS]
    return SyncVectorEnv(makers, observation_mode=mode)


@pytest.mark.parametrize(("name", "size"), [("sequential", 2), ("fork", 2), ("fork", 1)])
def test_different_bounds_are_kept_and_checked_for_each(name: str, size: int) -> None:
    fleet = envfleet.make(Bounded, env_kwargs=BOUNDS, observation_mode="different", group_size=size, **BACKENDS[name])
    expected = reference("different")
    assert fleet.observation_space == expected.observation_space
    assert fleet.single_observation_space == expected.single_observation_space
    observations = fleet.reset(seed=1)[0]
    assert observations["box"][:, 0].tolist() == [1, 2, 3, 9] and observations["choice"].tolist() == [1, 2, 3, 9]
    with pytest.raises(envfleet.ObservationError, match=r"outside \[0.0, 2.0\] \(environment 1,"):
        fleet.step(np.array([0, 1, 0, 0]))
    fleet.close()
    expected.close()


def test_a_space_for_all() -> None:
    single = Bounded(9).observation_space
    fleet = envfleet.make(Bounded, env_kwargs=BOUNDS, observation_mode=single, backend="sequential")
    assert fleet.single_observation_space == single
    assert fleet.observation_space == gymnasium.vector.utils.batch_space(single, 4)
    pair = (fleet.observation_space, single)
    both = envfleet.make(Bounded, env_kwargs=BOUNDS, observation_mode=pair, backend="sequential")
    assert (both.observation_space, both.single_observation_space) == pair
    fleet.action_space = both.action_space = spaces.MultiDiscrete([1] * 4)  # only action 0, which keeps to the bounds
    assert same(trace(fleet, 3, seed=1), trace(both, 3, seed=1))
    fleet.close()
    both.close()


def test_spaces_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(RuntimeError, match=r"different observation spaces.*\nhint: .*observation_mode='different'"):
        envfleet.make(Bounded, env_kwargs=BOUNDS, backend="sequential")
    boxes = [lambda size=size: Shaped(size) for size in (1, 2)]
    with pytest.raises(envfleet.SettingsError, match="observation spaces of different form"):
        envfleet.make(boxes, observation_mode="different", backend="sequential")
    with pytest.raises(envfleet.SettingsError, match="observation_mode is 'similar', expected 'same'"):
        envfleet.make(boxes, observation_mode="similar", backend="sequential")


class Shaped(Bounded):
    def __init__(self, size: int) -> None:
        super().__init__(1)
        self.observation_space = spaces.Box(0, 1, (size,), np.float32)
