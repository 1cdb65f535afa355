"""`metaworld/ML1-reach-v3`, `metaworld/ML10`: the Meta-World benchmark (Yu et al. 2019) with tasks as plain values.

Meta-World keeps a task as a pickle with a class in it. Here it is the name of the class and the vector that places the
objects and the goal: {"env_name": "reach-v3", "rand_vec": [...]}. An environment builds the simulator of a class when
it first needs it, so one of ML10 has up to ten.
"""

from __future__ import annotations

import re
from importlib.metadata import requires, version
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envfleet.environments.meta.task_env import State, TaskEnv
from envfleet.errors import SettingsError

__all__ = ["MetaWorld"]

_STATE, _ACTION = 39, 4
_LONGEST = 9  # numbers that place objects and goal, at most


class MetaWorld(TaskEnv):
    """A robot arm that handles objects. ML1: one class of tasks with new goals; ML10: ten classes, five held out.

    State: that of Meta-World, without the goal. Reward: that of Meta-World. An episode is truncated after 500 steps;
    it is a success if the goal was reached once.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 80}
    horizon = 500

    def __init__(self, *, benchmark: str, render_mode: str | None = None, **settings: Any) -> None:
        super().__init__(render_mode=render_mode, **settings)
        _refuse_other_mujoco()
        classes, names = _classes(benchmark)
        self._classes, self._names = classes, names["test" if self.settings.task_set == "eval" else "train"]
        self._all_names = sorted({*names["train"], *names["test"]})
        self._simulators: dict[str, Any] = {}
        self._simulator: Any = None  # of the running episode
        self._actions: list[list[float]] = []  # of the running episode
        self._succeeded = False
        self.observation_space = spaces.Box(-np.inf, np.inf, (_STATE,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (_ACTION,), np.float32)

    def sample_tasks(self, n: int, generator: np.random.Generator) -> list[Any]:
        """Draw tasks as Meta-World does: a reset draws again until objects and goal are apart."""
        tasks = []
        for _ in range(n):
            name = self._names[int(generator.integers(len(self._names)))]
            simulator = self._simulator_of(name)
            simulator._freeze_rand_vec, simulator.seeded_rand_vec = False, True
            simulator.np_random = generator
            simulator.reset()
            tasks.append({"env_name": name, "rand_vec": simulator._last_rand_vec.tolist()})
        return tasks

    def oracle_view(self, task: Any) -> list[float]:
        """The task as an oracle sees it: the class (one-hot), then the vector, padded with zeros."""
        place = [float(task["env_name"] == name) for name in self._all_names]
        return [*place, *task["rand_vec"], *[0.0] * (_LONGEST - len(task["rand_vec"]))]

    def _simulator_of(self, name: str) -> Any:
        if name not in self._simulators:
            simulator = self._classes[name](render_mode=self.render_mode)
            simulator._set_task_called = True
            self._simulators[name] = simulator
        return self._simulators[name]

    def _task_values(self, task: Any) -> tuple[Any, NDArray[np.float64]]:
        """The task and its vector; raise SettingsError if it does not belong to this benchmark."""
        known = isinstance(task, dict) and task.get("env_name") in self._all_names
        try:
            vector = np.asarray(task["rand_vec"], np.float64) if known else np.empty(0)
            right = vector.shape == self._simulator_of(task["env_name"])._random_reset_space.shape if known else False
        except (KeyError, TypeError, ValueError):
            right = False
        if not right:
            raise SettingsError(
                f"received the task {str(task)[:80]}, expected {{'env_name': ..., 'rand_vec': [...]}} with one of "
                f"{', '.join(self._all_names)}",
                hint="sample_tasks(n, generator) draws tasks",
            )
        return {"env_name": task["env_name"], "rand_vec": vector.tolist()}, vector

    def _begin(self, task: NDArray[np.float64]) -> State:
        self._simulator = self._simulator_of(self.task["env_name"])
        self._simulator._freeze_rand_vec, self._simulator._last_rand_vec = True, task
        self._actions, self._succeeded = [], False
        observation, _ = self._simulator.reset()
        return np.asarray(observation, np.float32)

    def _act(self, action: Any) -> tuple[State, float, bool, dict[str, Any]]:
        given = np.asarray(action, np.float64)
        self._actions.append(given.tolist())
        observation, reward, terminated, _, info = self._simulator.step(given)
        self._succeeded |= bool(info["success"])
        return np.asarray(observation, np.float32), float(reward), bool(terminated), {"is_success": self._succeeded}

    def describe(self) -> str:
        return f"{self.task['env_name']} " + " ".join(f"{number:.2f}" for number in self.task["rand_vec"])

    def _picture(self) -> NDArray[np.uint8]:
        image: NDArray[np.uint8] = np.ascontiguousarray(self._simulator.render())
        return image

    def close(self) -> None:
        for simulator in self._simulators.values():
            simulator.close()
        self._simulators = {}

    # ---- state: the simulators are deterministic, so the actions of the episode are enough

    def get_state(self) -> dict[str, Any]:
        """The state of the environment, as plain data."""
        return {
            "task": self.task,
            "actions": [list(action) for action in self._actions],
            "generator": self.np_random.bit_generator.state,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Play the episode again up to this state."""
        self.task, self._steps = state["task"], len(state["actions"])
        if self.task is not None:
            self._begin(np.array(self.task["rand_vec"], np.float64))
            for action in state["actions"]:
                self._act(action)
        self.np_random.bit_generator.state = state["generator"]


def _classes(benchmark: str) -> tuple[Any, dict[str, list[str]]]:
    """The classes of simulators by name, and the names for training and held-out tasks."""
    from metaworld import env_dict

    classes = env_dict.ALL_V3_ENVIRONMENTS
    if benchmark == "ML10":
        return classes, {part: list(env_dict.ML10_V3[part]) for part in ("train", "test")}
    name = benchmark.removeprefix("ML1-")
    if name == benchmark or name not in classes:
        raise SettingsError(
            f"received the benchmark {benchmark!r}, expected 'ML10' or 'ML1-' with a name of Meta-World"
        )
    return classes, {"train": [name], "test": [name]}


def _refuse_other_mujoco() -> None:
    """Raise SettingsError unless MuJoCo has the version that Meta-World pins; its models load only with that one."""
    pins = [re.fullmatch(r"mujoco==([\d.]+)", need) for need in requires("metaworld") or ()]
    wanted, found = next((pin[1] for pin in pins if pin), None), version("mujoco")
    if wanted is not None and found != wanted:
        raise SettingsError(
            f"Meta-World {version('metaworld')} needs mujoco {wanted}, found {found}",
            hint='make a virtual environment for it: pip install "envfleet[metaworld]"',
        )
