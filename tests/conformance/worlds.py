"""Environments with one fault each, and a quick `check`: in this process, with few steps."""

from __future__ import annotations

import copy
import functools
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from envfleet.conformance import CheckReport, examine

check = functools.partial(examine, steps=24, seconds=600, isolated=False)
Result = tuple[Any, Any, Any, Any, Any]


class Walk(gymnasium.Env):
    """A random walk that follows all rules; each broken one below changes one thing."""

    metadata = {"render_modes": ["human", "rgb_array"], "render_fps": 10}
    episode_length = 10

    def __init__(self, render_mode: str | None = None) -> None:
        self.observation_space = spaces.Box(-1000, 1000, (2,), np.float32)
        self.action_space = spaces.Discrete(3)
        self.render_mode = render_mode

    def observe(self) -> Any:
        return np.array([self.position, self.taken], np.float32)

    def start(self) -> float:
        return self.np_random.uniform(-1, 1)

    def noise(self) -> float:
        return self.np_random.normal()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.taken, self.position = 0, self.start()
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        self.taken += 1
        self.position = float(np.clip(self.position + float(np.sum(action)) - 1 + self.noise(), -100, 100))
        return self.observe(), -abs(self.position), self.taken >= self.episode_length, False, {}

    def render(self) -> Any:
        return np.zeros((4, 6, 3), np.uint8)


class ContinuousWalk(Walk):
    def __init__(self, low: float = -1, high: float = 1) -> None:
        super().__init__()
        self.action_space = spaces.Box(low, high, (1,), np.float32)


def returning(**changes: Any) -> type[Walk]:
    """Return a Walk class whose steps return changed values under these names (functions of the environment)."""
    names = ("observation", "reward", "terminated", "truncated", "info")

    class Changed(Walk):
        def step(self, action: Any) -> Result:
            result = dict(zip(names, super().step(action), strict=True))
            result.update({name: change(self) for name, change in changes.items()})
            return tuple(result.values())  # type: ignore[return-value]

    return Changed


def sampling(observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> type[Walk]:
    """Return a Walk class that observes samples of one space and takes actions of another."""

    class Sampler(Walk):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space, self.action_space = copy.deepcopy((observation_space, action_space))

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            gymnasium.Env.reset(self, seed=seed)
            self.taken = 0
            if seed is not None:
                self.observation_space.seed(seed)
            return self.observation_space.sample(), {}

        def step(self, action: Any) -> Result:
            assert action in self.action_space
            self.taken += 1
            return self.observation_space.sample(), 0.0, self.taken >= 10, False, {}

    return Sampler


class Endless(Walk):
    episode_length = 10**9


def raising(operation: str) -> type[Walk]:
    def fail(self: Any, *arguments: Any, **keywords: Any) -> Any:
        return 1 / len(arguments * 0)  # the line that the report must show

    return type("Raising", (Walk,), {operation: fail})


def only_problem(report: CheckReport) -> tuple[str, str, str]:
    assert len(report.problems) == 1, str(report)
    problem = report.problems[0]
    return problem.severity, problem.what, problem.fix


def assert_problem(report: CheckReport, severity: str, what: str, fix: str) -> None:
    """Check that the report has exactly one problem, with this severity and these texts."""
    found_severity, found_what, found_fix = only_problem(report)
    assert found_severity == severity
    assert what in found_what
    assert fix in found_fix
