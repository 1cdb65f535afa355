"""MuJoCo continues from a state with the same bytes, and never receives invalid numbers."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from envfleet.errors import StateError
from envfleet.fleet.state import capture, restore
from tests.fleet.continuation import assert_continues_exactly

mujoco = pytest.importorskip("mujoco")

MUJOCO = ["Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Humanoid-v5"]

BOXES = """
<mujoco>
  <option><flag sleep="enable" energy="enable"/></option>
  <worldbody>
    <geom type="plane" size="5 5 .1"/>
    <body pos="0 0 .3"><freejoint/><geom type="box" size=".1 .1 .1"/></body>
    <body pos="1 0 2"><freejoint/><geom type="box" size=".1 .1 .1"/></body>
    <body pos="1.05 0 8"><freejoint/><geom type="box" size=".1 .1 .1"/></body>
  </worldbody>
</mujoco>
"""


class FallingBoxes(gymnasium.Env):
    """Boxes that come to rest and fall asleep, in MuJoCo without Gymnasium's base class."""

    def __init__(self, gravity: float = -9.81) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (21,))
        self.action_space = spaces.Discrete(1)
        self.model = mujoco.MjModel.from_xml_string(BOXES)
        self.model.opt.gravity[2] = gravity
        self.data = mujoco.MjData(self.model)
        self.positions = self.data.qpos  # a view of MuJoCo's memory

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        mujoco.mj_resetData(self.model, self.data)
        return self.positions.copy(), {}

    def step(self, action: Any) -> Any:
        mujoco.mj_step(self.model, self.data)
        seen = {"energy": self.data.energy.copy(), "time": self.data.time, "awake": self.data.ntree_awake}
        return self.positions.copy(), 0.0, False, False, seen


@pytest.mark.parametrize("before", [0, 1, 57])
@pytest.mark.parametrize("env_id", MUJOCO)
def test_mujoco_continues_exactly(env_id: str, before: int) -> None:
    assert_continues_exactly(lambda: gymnasium.make(env_id, max_episode_steps=90), before, after=200)


@pytest.mark.parametrize("before", [200, 400, 900])  # all awake, some, none
def test_mujoco_bodies_that_sleep_continue_exactly(before: int) -> None:
    assert_continues_exactly(FallingBoxes, before, after=600)


def test_a_changed_mujoco_model_is_refused() -> None:
    with pytest.raises(StateError, match="model that differs"):
        restore(FallingBoxes(gravity=-1.0), capture(FallingBoxes()))


def test_another_mujoco_version_is_refused() -> None:
    state = capture(FallingBoxes())
    state["layers"][0]["attributes"]["data"]["version"] = "2.0.0"
    with pytest.raises(StateError, match=r"MuJoCo 2\.0\.0"):
        restore(FallingBoxes(), state)


@pytest.mark.parametrize("count", [-1, 10**6])
def test_counts_beyond_mujocos_arrays_are_refused(count: int) -> None:
    state = capture(FallingBoxes())
    state["layers"][0]["attributes"]["data"]["scalars"]["nv_awake"] = count
    with pytest.raises(StateError, match="nv_awake"):
        restore(FallingBoxes(), state)


def test_too_few_mujoco_numbers_are_refused() -> None:
    state = capture(FallingBoxes())
    arrays = state["layers"][0]["attributes"]["data"]["arrays"]
    arrays["float64"] = arrays["float64"][:-1]
    with pytest.raises(StateError, match="too few numbers"):
        restore(FallingBoxes(), state)
