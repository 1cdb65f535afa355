"""A single environment with the Gymnasium API and the fault protection of a fleet.

Evaluation, random play, demonstrations and inspection need a single environment. It may crash, hang or raise there
just as in training, so it runs in a fleet of one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from envfleet.fleet.fleet import Fleet
from envfleet.fleet.spaces import leaves_of, pick, rebuild

__all__ = ["SingleEnv"]


class SingleEnv:
    """A fleet of one environment without autoreset. A step lost to a fault has `info["restarted"]`."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.observation_space, self.action_space = fleet.single_observation_space, fleet.single_action_space
        self.metadata, self.render_mode, self.spec = fleet.metadata, fleet.render_mode, fleet.spec
        self._observation_leaves, self._action_leaves = leaves_of(self.observation_space), leaves_of(self.action_space)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        observations, infos = self._fleet.reset(seed=[seed], options=options)
        return self._first(observations), _own_info(infos)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step; a lost step ends the episode as truncated."""
        observations, rewards, terminated, truncated, infos = self._fleet.step(self._batched(action))
        return self._first(observations), float(rewards[0]), bool(terminated[0]), bool(truncated[0]), _own_info(infos)

    def render(self) -> Any:
        """Rendered frame of the environment."""
        return self._fleet.render()[0]

    def apply(self, function: Callable[[Any], Any]) -> Any:
        """Call `function(env)` in the process that hosts the environment, and return its result."""
        return self._fleet.apply(function)[0]

    def apply_within_step(self, function: Callable[[Any], Any]) -> Any:
        """As `apply`, with the time limit of a step for `function(env, starting=...)` outside `starting()`."""
        return self._fleet.apply_within_step(function)[0]

    def rebuild(self) -> None:
        """Replace the environment with a fresh one."""
        self._fleet.rebuild()

    def close(self) -> None:
        """Do nothing: the worker stays for the next `rebuild`, until `end`."""

    def end(self) -> None:
        """Close the environment and end its worker."""
        self._fleet.close()

    def _batched(self, action: Any) -> Any:
        parts: dict[Any, Any] = {}
        for leaf in self._action_leaves:
            value = pick(action, leaf.path)
            parts[leaf.path] = np.asarray(value)[None] if leaf.fixed else (value,)
        return rebuild(self.action_space, parts)

    def _first(self, batch: Any) -> Any:
        parts = {leaf.path: pick(batch, leaf.path)[0] for leaf in self._observation_leaves}
        return rebuild(self.observation_space, parts)


def _own_info(infos: dict[str, Any]) -> dict[str, Any]:
    """Info of the only environment, from batched infos."""
    info: dict[str, Any] = {}
    for key, value in infos.items():
        given = infos.get(f"_{key}")
        if given is not None and given[0]:
            info[key] = _own_info(value) if isinstance(value, dict) else value[0]
    return info
