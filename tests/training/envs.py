"""Environments of single tests, in a module that workers import without torch and pytest."""

from __future__ import annotations

import math
import os
import signal
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from tests.hanging import hang
from tests.rollout.envs import Counter


class Walk(gymnasium.Env[Any, Any]):
    """Has an iterator that cannot be saved as plain data; only its get_state and set_state can save it."""

    observation_space = spaces.Box(-100, 100, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time, self.place = 0, float(self.np_random.normal())
        self.drawn = iter(lambda: self.np_random.normal(), None)
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        self.place += 2 * float(action) - 1 + next(self.drawn)
        return self._seen(), -abs(self.place), False, self.time >= 20, {}

    def _seen(self) -> Any:
        return np.array([self.place, self.time / 20], np.float32)

    def get_state(self) -> dict[str, Any]:
        return {"time": self.time, "place": self.place, "generator": self.np_random.bit_generator.state}

    def set_state(self, state: dict[str, Any]) -> None:
        self.reset()
        self.time, self.place = state["time"], state["place"]
        self.np_random.bit_generator.state = state["generator"]


class Stateless(gymnasium.Env[Any, Any]):
    """Has an attribute that cannot be saved as plain data."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.time = 0
        self.secret = iter(range(10**9))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        next(self.secret)
        return np.full(2, self.time / 100, np.float32), float(action), False, self.time >= 20, {}


class Adjustable(gymnasium.Env[Any, Any]):
    """Observes and pays its level, which can be set from outside."""

    observation_space = spaces.Box(0, np.inf, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, explode_after: float = math.inf, explosion: float = math.inf) -> None:
        self.level, self.time, self.life = 0, 0, 0
        self.explode_after, self.explosion = explode_after, explosion

    def set_level(self, level: int) -> None:
        self.level = level

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return np.array([self.level], np.float64), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time, self.life = self.time + 1, self.life + 1
        reward = float(self.level) if self.life <= self.explode_after else self.explosion
        return np.array([self.level], np.float64), reward, False, self.time == 10, {}


class OneAllowed(gymnasium.Env[Any, Any]):
    """Raises if the action is forbidden by its mask."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self.action_space: spaces.Space[Any] = {
            "discrete": spaces.Discrete(4),
            "row": spaces.MultiDiscrete([3, 2]),
            "tuple": spaces.MultiDiscrete([3, 2]),
            "switches": spaces.MultiBinary(3),
        }[kind]

    def _info(self) -> dict[str, Any]:
        masks: dict[str, Any] = {
            "discrete": np.array([0, 0, 1, 0], np.int8),
            "row": np.array([0, 1, 0, 1, 0], np.int8),
            "tuple": (np.array([0, 1, 0], np.int8), np.array([1, 0], np.int8)),
            "switches": np.array([0, 1, 0], np.int8),
        }
        return {"action_mask": masks[self._kind]}

    def _allows(self, action: Any) -> bool:
        if self._kind == "discrete":
            return int(action) == 2
        if self._kind == "switches":
            return not action[0] and not action[2]
        return np.asarray(action).tolist() == [1, 0]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._time = 0
        return np.zeros(2, np.float32), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self._allows(action):
            raise ValueError(f"{action} is forbidden")
        self._time += 1
        return np.zeros(2, np.float32), 1.0, False, self._time == 5, self._info()


class FailsAtOnce(gymnasium.Env[Any, Any]):
    """Can be built and reset; its first step raises."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        raise RuntimeError("no simulator")


class Scored(gymnasium.Env[Any, Any]):
    """Episodes of 3 to 6 steps; those of even length are a success. `term` is the step number."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._time, self._length = 0, int(self.np_random.integers(3, 7))
        return self._seen(), {"term": 1000.0}  # not counted: a reset is not a step

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._time += 1
        ended = self._time == self._length
        info: dict[str, Any] = {"term": self._time, "terms": {"half": np.float32(self._time / 2)}, "word": "high"}
        info["score"] = np.array([self._time])
        if ended:
            info["is_success"] = self._length % 2 == 0
        return self._seen(), 1.0, ended, False, info

    def _seen(self) -> Any:
        return np.full(1, self._time / 10, np.float32)

    def add_to_time(self, much: int) -> int:
        self._length += much
        return self._length


class Flat(gymnasium.Env[Any, Any]):
    """Every episode has a return of 3, whatever the actions."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        return np.zeros(2, np.float32), 1.0, self.time == 3, False, {}

    def get_state(self) -> dict[str, Any]:
        return {"time": self.time}

    def set_state(self, state: dict[str, Any]) -> None:
        self.time = state["time"]


class Drawn(Flat):
    """Renders the time as a grey image; rendering can be made to fail."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}
    broken = False

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def render(self) -> Any:
        if self.broken:
            raise RuntimeError("the pen broke")
        return np.full((16, 16, 3), 60 * self.time, np.uint8)


class NoOpenGL(Drawn):
    """Renders like MuJoCo without OpenGL."""

    def render(self) -> Any:
        raise ImportError("Cannot initialize a EGL device display (MUJOCO_GL)")


class Pale(Drawn):
    """Renders a picture of floats."""

    def render(self) -> Any:
        return super().render() / 255


class Blind(Drawn):
    """Renders nothing."""

    def render(self) -> Any:
        return None


class Goal(Flat):
    """Keeps the goals that environments of this process were built with."""

    goals: list[Any] = []

    def __init__(self, goal: Any) -> None:
        self.goals.append(goal)


class Built(Flat):
    """Writes the process that builds it to a file."""

    def __init__(self, log: str) -> None:
        with open(log, "a") as file:
            file.write(f"{os.getpid()}\n")


class Printing(Flat):
    """Prints in every reset and step."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        print("a reset", flush=True)  # noqa: T201  # as simulators do
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        print("a step", flush=True)  # noqa: T201
        return super().step(action)


class ComparesBadly(Flat):
    """Offers a comparison that fails."""

    def compare(self, agent: Any, folder: Path, *, episodes: int, seed: int) -> Any:
        raise RuntimeError("no baseline")


class Silent(Flat):
    """Accepts a render_mode but cannot render."""

    def __init__(self, render_mode: str | None = None) -> None:
        pass


class Draws(gymnasium.Env[Any, Any]):
    """The same numbers as a float32 array, a float64 array or a list; rewards are arrays unless the kind is "right"."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, kind: str) -> None:
        self.kind, self.time = kind, 0

    def observe(self) -> Any:
        drawn = self.np_random.uniform(-1, 1, 2)
        return {"right": drawn.astype(np.float32), "double": drawn, "list": list(drawn)}[self.kind]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.time += 1
        reward = float(action) if self.kind == "right" else np.array([action], np.float32)
        return self.observe(), reward, self.time >= 9, False, {}


class Outside(Draws):
    """Observations are far outside their bounds."""

    def observe(self) -> Any:
        return super().observe() + np.float32(2)


class Endless(gymnasium.Env[Any, Any]):
    """Never returns from its third step."""

    observation_space = spaces.Box(-1, 1, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        while self._steps == 3:
            time.sleep(1.0)
        return np.zeros(3, np.float32), 0.0, False, False, {}


class Hanging(Counter):
    """Sleeps forever in its fortieth step."""

    def __init__(self, mark: str) -> None:
        super().__init__()
        self._mark = Path(mark)
        self._steps_so_far = 0

    def step(self, action: Any) -> Any:
        self._steps_so_far += 1
        if self._steps_so_far == 40:
            hang(self._mark)
        return super().step(action)


class Deadly(Counter):
    """Kills its process when it is built or stepped."""

    def __init__(self, at: str) -> None:
        super().__init__()
        self.at = at
        self.fail("make")

    def fail(self, at: str) -> None:
        if self.at == at:
            os._exit(3)

    def step(self, action: Any) -> Any:
        self.fail("step")
        return super().step(action)


class FailsOnce(Counter):
    """Misbehaves in the first step of all its copies, which is the one that `auto` times."""

    def __init__(self, how: str, mark: str) -> None:
        super().__init__()
        self.how, self.mark, self.failed = how, Path(mark), Path(f"{mark}-failed")

    def step(self, action: Any) -> Any:
        if not self.failed.exists():
            self.failed.touch()
            if self.how == "crash":
                os._exit(3)
            if self.how == "hang":
                hang(self.mark)
            raise ValueError("the engine exploded once")
        return super().step(action)


class SlowReset(Counter):
    """Its resets take 2.5 s."""

    def reset(self, **options: Any) -> Any:
        time.sleep(2.5)
        return super().reset(**options)


class Ages(Counter):
    """Counts its own episodes."""

    def __init__(self) -> None:
        super().__init__()
        self.age = 0

    def reset(self, **options: Any) -> Any:
        self.age += 1
        return super().reset(**options)


INTERRUPTED: list[bool] = []  # whether an environment of this process has sent Ctrl-C


class OnlyWhenEvaluated(Counter):
    """Misbehaves only in evaluations, whose seeds start at 2**30."""

    def __init__(self, how: str, mark: str = "") -> None:
        super().__init__()
        self.how, self.mark, self.evaluated = how, mark, False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.evaluated = seed is not None and seed >= 2**30
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        if not self.evaluated:
            return observation, reward, terminated, truncated, info
        if self.how == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.how == "hang":
            hang(Path(self.mark))
        elif self.how == "raise":
            raise ValueError("the engine exploded")
        elif self.how == "interrupt" and not INTERRUPTED:
            INTERRUPTED.append(True)
            os.kill(os.getpid(), signal.SIGINT)
        return observation, reward, False, False, info  # never ends
