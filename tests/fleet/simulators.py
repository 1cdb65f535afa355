"""Small environments with one fault each, and some with unusual spaces. Importable by workers."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from tests.hanging import hang


class Counter(gymnasium.Env[Any, Any]):
    """Counts its steps and ends after `length`; the base class of the faulty ones."""

    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, length: int = 10, render_mode: str | None = "rgb_array") -> None:
        self.length, self.render_mode = length, render_mode
        self.observation_space: spaces.Space[Any] = spaces.Box(0.0, 1000.0, (3,), np.float32)
        self.action_space: spaces.Space[Any] = spaces.Discrete(4)
        self.task: Any = None
        self.count = 0
        self.offset = 0.0

    def observe(self) -> Any:
        return np.array([self.count, self.offset, len(str(self.task))], np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.task = (options or {}).get("task")
        self.count = 0
        self.offset = float(self.np_random.integers(100))
        return self.observe(), {"task": -1 if self.task is None else self.task, "began": True}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        return self.observe(), float(action), self.count >= self.length, False, {"count": self.count}

    def render(self) -> Any:
        return np.full((2, 2, 3), self.count, np.uint8)


class Raises(Counter):
    """Raises at a step of each episode, in reset, or on construction."""

    def __init__(self, at: int = 3, where: str = "step", **kwargs: Any) -> None:
        if where == "make":
            raise RuntimeError("no engine")
        super().__init__(**kwargs)
        self.at, self.where = at, where

    def reset(self, **kwargs: Any) -> Any:
        if self.where == "reset":
            raise RuntimeError("cannot start")
        return super().reset(**kwargs)

    def step(self, action: Any) -> Any:
        if self.where == "step" and self.count == self.at:
            raise ValueError("the engine exploded")
        return super().step(action)


class EngineError(Exception):
    """An environment's own exception, with attributes of its own."""

    def __init__(self, code: int, *, parts: list[str]) -> None:
        super().__init__(f"code {code}")
        self.code, self.parts, self.lock = code, parts, threading.Lock()


class EngineFails(Counter):
    """Raises an exception with attributes in every step."""

    def step(self, action: Any) -> Any:
        raise EngineError(7, parts=["valve", "pump"])


class RaisesOnce(Counter):
    """Raises at step `at` of an episode, but only once: not if the flag file exists."""

    def __init__(self, flag: str, at: int = 3, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.flag, self.at = flag, at

    def fail(self) -> None:
        raise ValueError("the engine exploded once")

    def step(self, action: Any) -> Any:
        if self.count == self.at and not Path(self.flag).exists():
            Path(self.flag).touch()
            self.fail()
        return super().step(action)


class DiesOnce(RaisesOnce):
    """Kills its own process once."""

    def fail(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class DiesTwice(DiesOnce):
    """Kills its own process once, and then the replacement process while it builds the environment."""

    def __init__(self, flag: str, at: int = 3, **kwargs: Any) -> None:
        super().__init__(flag, at, **kwargs)
        again = Path(f"{flag}-again")
        if Path(flag).exists() and not again.exists():
            again.touch()
            self.fail()


class HangsOnce(RaisesOnce):
    def __init__(self, mark: Path, at: int = 3, **kwargs: Any) -> None:
        super().__init__(f"{mark}-once", at, **kwargs)
        self.mark = mark

    def fail(self) -> None:
        hang(self.mark)


class DiesAlways(Counter):
    """Kills its own process at every third step."""

    def step(self, action: Any) -> Any:
        if self.count == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


class Bad(Counter):
    """Returns something wrong at its third step (or at reset with at=0)."""

    def __init__(self, what: str, at: int = 2, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.what, self.at = what, at

    def observe(self) -> Any:
        good = super().observe()
        if self.count != self.at:
            return good
        return {
            "shape": np.zeros(4, np.float32),
            "dtype": good.astype(np.float64),
            "nan": np.array([0, np.nan, 0], np.float32),
            "bounds": np.array([0, 0, -5], np.float32),
            "type": [0.0, 0.0, 0.0],
        }.get(self.what, good)

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        if self.what == "reward" and self.count == self.at:
            reward = float("nan")
        return observation, reward, terminated, truncated, info


class Masked(Counter):
    """Gives an action mask in its infos."""

    def reset(self, **kwargs: Any) -> Any:
        observation, _ = super().reset(**kwargs)
        return observation, {"action_mask": self.mask()}

    def mask(self) -> Any:
        return np.array([self.count % 4 != i for i in range(4)], np.int8)

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, _ = super().step(action)
        return observation, reward, terminated, truncated, {"action_mask": self.mask(), "note": "text"}


class Nested(Counter):
    """Dict and Tuple observations and actions of many types."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.observation_space = spaces.Dict(
            {
                "image": spaces.Box(0, 255, (4, 4, 3), np.uint8),
                "pair": spaces.Tuple((spaces.Discrete(5, start=1), spaces.MultiBinary(3))),
                "deep": spaces.Dict({"x": spaces.Box(-np.inf, np.inf, (), np.float64)}),
                "many": spaces.MultiDiscrete([3, 4]),
            }
        )
        self.action_space = spaces.Dict(
            {
                "move": spaces.Discrete(3),
                "push": spaces.Box(-1, 1, (2,), np.float32),
                "flags": spaces.MultiBinary(2),
            }
        )
        self.kept: list[Any] = []

    def observe(self) -> Any:
        draw = self.np_random
        return {
            "image": draw.integers(0, 256, (4, 4, 3)).astype(np.uint8),
            "pair": (int(draw.integers(1, 6)), draw.integers(0, 2, 3).astype(np.int8)),
            "deep": {"x": np.float64(draw.normal())},
            "many": draw.integers(0, 3, 2),
        }

    def step(self, action: Any) -> Any:
        self.kept.append(action["push"])
        self.count += 1
        reward = float(action["move"]) + float(action["push"].sum()) + float(action["flags"].sum())
        return (
            self.observe(),
            reward,
            self.count >= self.length,
            False,
            {"nested": {"count": self.count, "deep": {"v": 1.5}}},
        )


class Talks(Counter):
    """Text observations and actions."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.observation_space = spaces.Dict({"say": spaces.Text(20), "n": spaces.Box(0, 99, (1,), np.int64)})
        self.action_space = spaces.Text(10)
        self.heard = ""

    def observe(self) -> Any:
        return {"say": f"step{self.count}{self.heard}", "n": np.array([self.count])}

    def step(self, action: Any) -> Any:
        self.heard = action[:3]
        self.count += 1
        return self.observe(), float(len(action)), self.count >= self.length, False, {}


class Counting(gymnasium.Env[Any, Any]):
    """Episodes as long as the seed, with the step count in the info."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self._length = seed
        self._count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._count += 1
        return np.zeros(1, np.float32), 0.0, self._count == self._length, False, {"count": self._count}


class Holds(Nested):
    """Keeps something that is not plain data."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = iter([1, 2, 3])


def sample_task(rng: Any) -> int:
    return int(rng.integers(1000))


class Heavy(Counter):
    """Has a large world that changes with every step."""

    def __init__(self, size: int = 2**20) -> None:
        super().__init__(length=1000)
        self.world = np.zeros(size, np.uint8)

    def reset(self, **kwargs: Any) -> Any:
        observation, info = super().reset(**kwargs)
        self.world[:] = self.np_random.integers(200)
        return observation, info

    def step(self, action: Any) -> Any:
        self.world[-1] += 1
        observation, _, terminated, truncated, info = super().step(action)
        return observation, float(self.world[-1]) + float(self.world[0]), terminated, truncated, info


class Chatty(Counter):
    """Puts more into every info than a socket takes at once."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, _ = super().step(action)
        return observation, reward, terminated, truncated, {"said": bytes(2**20)}


class MixedNumbers(Counter):
    """Its info holds an integer after a reset and a fraction after a step."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return super().reset(seed=seed, options=options)[0], {"share": 1}

    def step(self, action: Any) -> Any:
        return *super().step(action)[:4], {"share": 0.25}


class Rots(Counter):
    """Grows older with every reset."""

    def __init__(self) -> None:
        super().__init__(length=2)
        self.age = 0

    def reset(self, **kwargs: Any) -> Any:
        self.age += 1
        return super().reset(**kwargs)
