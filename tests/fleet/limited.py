"""Environments with time limits. Importable by workers."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.wrappers import OrderEnforcing, TimeLimit

from tests.fleet.simulators import Counter


class Endless(Counter):
    """Its episodes never end without a time limit."""

    def __init__(self) -> None:
        super().__init__(length=10**9)


class CallsItsOwn(TimeLimit[Any, Any]):
    """A time limit that overrides `step`."""

    def step(self, action: Any) -> Any:
        observation, _, terminated, truncated, info = super().step(action)
        return observation, 7.0, terminated, truncated, info


def limited(*limits: int) -> gymnasium.Env[Any, Any]:
    env: Any = OrderEnforcing(Endless())
    for limit in limits:
        env = TimeLimit(env, limit)
    return env
