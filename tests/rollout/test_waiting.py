"""While a rollout is collected, the waiting caller can see its progress."""

from __future__ import annotations

import threading
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from tests.rollout.collecting import ENVS, STEPS, collecting

FREE_STEPS = 3


class Gated(gymnasium.Env[Any, Any]):
    """Waits in its fourth step until the gate is opened."""

    observation_space = spaces.Box(0, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)
    gate = threading.Event()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        if self._steps > FREE_STEPS:
            assert self.gate.wait(50), "nobody was called who could have opened it"
        return np.zeros(2, np.float32), 0.0, False, False, {}


@pytest.mark.parametrize(
    ("acting", "backend"), [("worker", "threads"), ("central", "threads"), ("central", "sequential")]
)
def test_who_waits_is_called_and_sees_the_steps(acting: str, backend: str) -> None:
    Gated.gate.clear()
    seen: list[int] = []
    with collecting(Gated, acting=acting, backend=backend) as rig:

        def look() -> None:
            seen.append(rig.collector.steps_so_far)
            Gated.gate.set()

        rig.collector.while_waiting = look
        rig.collector.begin(0)
        rig.collector.finish()
        assert rig.collector.steps_so_far == STEPS * ENVS
    assert 0 <= seen[0] <= FREE_STEPS * ENVS


def test_who_does_the_work_itself_sees_every_step() -> None:
    seen: list[int] = []
    with collecting("CartPole-v1", acting="worker", backend="sequential") as rig:
        rig.collector.while_waiting = lambda: seen.append(rig.collector.steps_so_far)
        rig.collector.begin(0)
        rig.collector.finish()
    assert seen == list(range(4, STEPS * ENVS + 1, 4))  # one group of four after another
