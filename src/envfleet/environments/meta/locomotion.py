"""Walking robots with an unknown task, on Gymnasium's MuJoCo models (version 5).

Tasks and rewards are those of Ni et al. (2022), pomdp-baselines. Published figures are from older models: there the
contact forces of Ant were always zero, and the observations had other sizes.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from gymnasium.envs.mujoco.ant_v5 import AntEnv
from gymnasium.envs.mujoco.half_cheetah_v5 import HalfCheetahEnv
from gymnasium.envs.mujoco.humanoid_v5 import HumanoidEnv
from gymnasium.envs.mujoco.mujoco_env import MujocoEnv
from numpy.typing import NDArray

from envfleet.capabilities import KnownReturn
from envfleet.environments.meta.settings import AntDirSettings, TaskSettings
from envfleet.environments.meta.task_env import State, TaskEnv
from envfleet.seeding import stream

__all__ = ["AntDir", "AntGoal", "HalfCheetahDir", "HalfCheetahVel", "HumanoidDir"]

_KNOWN_TASKS = 100_000
_SPEED_PICTURES = 11  # pictures whose mean speed is shown: half a second


class _Walker(TaskEnv, MujocoEnv):
    """A MuJoCo model with a task. State: the observation of the model. Actions lie in [-1, 1]."""

    horizon = 200
    model_class: ClassVar[type[MujocoEnv]]
    model_settings: ClassVar[dict[str, Any]] = {}

    def __init__(self, *, render_mode: str | None = None, **settings: Any) -> None:
        TaskEnv.__init__(self, render_mode=render_mode, **settings)
        task_settings, metadata = self.settings, self.metadata
        self.metadata = self.model_class.metadata  # the model compares its frame rate with it
        self.model_class.__init__(self, render_mode=render_mode, **self.model_settings)
        self.settings, self.metadata = task_settings, {**metadata, "render_fps": round(1.0 / self.dt)}
        size = self.observation_space.shape
        self.observation_space = spaces.Box(-np.inf, np.inf, size, np.float32)
        self._scale = float(self.action_space.high[0])  # type: ignore[attr-defined]  # a Box
        self.action_space = spaces.Box(-1.0, 1.0, self.action_space.shape, np.float32)
        self._path: list[tuple[float, float]] = []  # positions of this episode's pictures

    @abstractmethod
    def _reward(self, moved: dict[str, Any]) -> float:
        """The reward, from the info of the model's step."""

    def _begin(self, task: NDArray[np.float64]) -> State:
        observation, _ = MujocoEnv.reset(self)
        self._path = []
        return np.asarray(observation, np.float32)

    def _act(self, action: Any) -> tuple[State, float, bool, dict[str, Any]]:
        given = self._scale * np.asarray(action, np.float64)
        step: Any = self.model_class.step  # declared for float32, but MuJoCo computes in float64
        observation, _, terminated, _, moved = step(self, given)
        return np.asarray(observation, np.float32), self._reward(moved), bool(terminated), {}

    def _ceiling(self, per_step: float, how: str) -> tuple[KnownReturn]:
        """The highest return that an agent can reach if it ignores its rewards."""
        returns = (per_step * self.horizon,) * self.settings.episodes_per_task
        return (KnownReturn("ceiling without adapting", how, returns),)

    def _picture(self) -> NDArray[np.uint8]:
        from envfleet.environments.meta.pictures import with_inset

        image: NDArray[np.uint8] = MujocoEnv.render(self)  # type: ignore[no-untyped-call]  # of Gymnasium
        self._path.append(self._position())
        return with_inset(image, self._inset())

    def _position(self) -> tuple[float, float]:
        """Where the robot is, seen from above."""
        x, y = self.data.qpos[:2]
        return float(x), float(y)

    @abstractmethod
    def _inset(self) -> NDArray[np.uint8]:
        """A small image of the task, and of how the robot has moved."""


def _along_x(data: Any) -> tuple[float, float]:
    """The position of a robot that moves in a plane; its second coordinate is its height."""
    return float(data.qpos[0]), 0.0


def _along(angle: float, moved: dict[str, Any]) -> float:
    """The speed in a direction."""
    return float(math.cos(angle) * moved["x_velocity"] + math.sin(angle) * moved["y_velocity"])


def _with_direction(path: Sequence[tuple[float, float]], angle: float) -> NDArray[np.uint8]:
    from envfleet.environments.meta.pictures import view_from_above

    return view_from_above(path, direction=angle)


def _sample_angles(n: int, generator: np.random.Generator) -> list[Any]:
    angles: list[Any] = generator.uniform(0.0, 2 * np.pi, n).tolist()
    return angles


class HalfCheetahVel(_Walker, HalfCheetahEnv):
    """Runs at an unknown speed, uniform in [0, 3]. Reward: -|speed - task| - 0.05 |action|²."""

    model_class = HalfCheetahEnv
    model_settings: ClassVar[dict[str, Any]] = {"ctrl_cost_weight": 0.05}

    def sample_tasks(self, n: int, generator: np.random.Generator) -> list[Any]:
        speeds: list[Any] = generator.uniform(0.0, 3.0, n).tolist()
        return speeds

    def _reward(self, moved: dict[str, Any]) -> float:
        return float(moved["reward_ctrl"] - abs(moved["x_velocity"] - self.task))

    def known_returns(self) -> Sequence[KnownReturn]:
        speeds = np.array(self.sample_tasks(_KNOWN_TASKS, stream(0)))
        return self._ceiling(-float(np.abs(speeds - np.median(speeds)).mean()), "always runs at the median speed")

    def describe(self) -> str:
        return f"speed {self.task:.2f}"

    def _position(self) -> tuple[float, float]:
        return _along_x(self.data)

    def _inset(self) -> NDArray[np.uint8]:
        from envfleet.environments.meta.pictures import gauge

        last = self._path[-_SPEED_PICTURES:]
        speed = (last[-1][0] - last[0][0]) / (self.dt * max(1, len(last) - 1))
        return gauge(self.task, speed, -1.0, 4.0)


class HalfCheetahDir(_Walker, HalfCheetahEnv):
    """Runs forwards or backwards. Reward: task · speed - 0.05 |action|². Task: 1 or -1."""

    model_class = HalfCheetahEnv
    model_settings: ClassVar[dict[str, Any]] = {"ctrl_cost_weight": 0.05}

    def all_tasks(self) -> Sequence[Any]:
        return (-1.0, 1.0)

    def sample_tasks(self, n: int, generator: np.random.Generator) -> list[Any]:
        directions: list[Any] = generator.choice(self.all_tasks(), n).tolist()
        return directions

    def _reward(self, moved: dict[str, Any]) -> float:
        return float(moved["reward_ctrl"] + self.task * moved["x_velocity"])

    def known_returns(self) -> Sequence[KnownReturn]:
        return self._ceiling(float(np.mean(self.all_tasks())), "both directions cancel out")

    def describe(self) -> str:
        return "forwards" if self.task > 0 else "backwards"

    def _position(self) -> tuple[float, float]:
        return _along_x(self.data)

    def _inset(self) -> NDArray[np.uint8]:
        return _with_direction(self._path, 0.0 if self.task > 0 else math.pi)


class AntDir(_Walker, AntEnv):
    """Walks in an unknown direction, an angle in radians. An episode ends when the ant falls.

    Reward: speed in the direction - 0.5 |action|² - 0.0005 |contact forces|² + 1.
    """

    model_class = AntEnv
    model_settings: ClassVar[dict[str, Any]] = {"include_cfrc_ext_in_observation": False}
    settings_class: ClassVar[type[TaskSettings]] = AntDirSettings

    def all_tasks(self) -> Sequence[Any] | None:
        assert isinstance(self.settings, AntDirSettings)
        return (-1.0, 1.0) if self.settings.directions == "two" else None

    def sample_tasks(self, n: int, generator: np.random.Generator) -> list[Any]:
        few = self.all_tasks()
        angles: list[Any] = _sample_angles(n, generator) if few is None else generator.choice(few, n).tolist()
        return angles

    def _reward(self, moved: dict[str, Any]) -> float:
        costs = moved["reward_ctrl"] + moved["reward_contact"]
        return float(_along(self.task, moved) + moved["reward_survive"] + costs)

    def known_returns(self) -> Sequence[KnownReturn]:
        # With two directions there is no bound: walking between them pays, and more so at a higher speed.
        return () if self.all_tasks() is not None else self._ceiling(self._healthy_reward, "stays upright")

    def describe(self) -> str:
        return f"direction {math.degrees(self.task):.0f}°"

    def _inset(self) -> NDArray[np.uint8]:
        return _with_direction(self._path, self.task)


class AntGoal(_Walker, AntEnv):
    """Walks to an unknown goal within a circle of radius 3 around its start. It may fall.

    Reward: -|x distance| - |y distance| - 0.1 |action|² - 0.0005 |contact forces|². The state includes the position.
    """

    model_class = AntEnv
    model_settings: ClassVar[dict[str, Any]] = {
        "ctrl_cost_weight": 0.1,
        "terminate_when_unhealthy": False,
        "exclude_current_positions_from_observation": False,
    }
    task_shape = (2,)

    def sample_tasks(self, n: int, generator: np.random.Generator) -> list[Any]:
        radii, angles = 3.0 * np.sqrt(generator.random(n)), generator.uniform(0.0, 2 * np.pi, n)
        goals: list[Any] = np.stack([radii * np.cos(angles), radii * np.sin(angles)], axis=1).tolist()
        return goals

    def _reward(self, moved: dict[str, Any]) -> float:
        x, y = self.task
        distance = abs(moved["x_position"] - x) + abs(moved["y_position"] - y)
        return float(moved["reward_ctrl"] + moved["reward_contact"] - distance)

    def known_returns(self) -> Sequence[KnownReturn]:
        goals = np.array(self.sample_tasks(_KNOWN_TASKS, stream(0)))
        return self._ceiling(-float(np.abs(goals).sum(axis=1).mean()), "stays in the centre of all goals")

    def describe(self) -> str:
        return f"goal ({self.task[0]:.1f}, {self.task[1]:.1f})"

    def _inset(self) -> NDArray[np.uint8]:
        from envfleet.environments.meta.pictures import view_from_above

        return view_from_above(self._path, goal=(self.task[0], self.task[1]))


class HumanoidDir(_Walker, HumanoidEnv):
    """Walks in an unknown direction, an angle in radians. An episode ends when the humanoid falls.

    Reward: 1.25 · speed in the direction - 0.1 |control|² - contact cost + 5.
    """

    model_class = HumanoidEnv

    def sample_tasks(self, n: int, generator: np.random.Generator) -> list[Any]:
        return _sample_angles(n, generator)

    def _reward(self, moved: dict[str, Any]) -> float:
        costs = moved["reward_ctrl"] + moved["reward_contact"]
        return float(1.25 * _along(self.task, moved) + moved["reward_survive"] + costs)

    def known_returns(self) -> Sequence[KnownReturn]:
        return self._ceiling(self._healthy_reward, "stays upright")

    def describe(self) -> str:
        return f"direction {math.degrees(self.task):.0f}°"

    def _inset(self) -> NDArray[np.uint8]:
        return _with_direction(self._path, self.task)
