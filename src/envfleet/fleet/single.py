"""One environment with the protection that a fleet has, used as one uses a Gymnasium environment.

Evaluations, random play, demonstrations and first looks need a single environment. It may crash, hang or raise there
as well as in training, so it lives in a fleet of one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from envfleet.fleet.fleet import Fleet
from envfleet.fleet.spaces import leaves_of, pick, rebuild

__all__ = ["SingleEnv"]


class SingleEnv:
    """A fleet of one environment without autoreset. A step that was lost to a fault has `info["restarted"]`."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.observation_space, self.action_space = fleet.single_observation_space, fleet.single_action_space
        self.metadata, self.render_mode, self.spec = fleet.metadata, fleet.render_mode, fleet.spec
        self._actions = np.empty((1, *(self.action_space.shape or ())), self.action_space.dtype)
        self._one_action = len(leaves_of(self.action_space)) == 1 and self._actions.dtype != object

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
        observations, infos = self._fleet.reset(seed=[seed], options=options)
        return self._first(observations), _own_info(infos)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Takes a step; one that was lost ends the episode as truncated."""
        observations, rewards, terminated, truncated, infos = self._fleet.step(self._batched(action))
        return self._first(observations), float(rewards[0]), bool(terminated[0]), bool(truncated[0]), _own_info(infos)

    def render(self) -> Any:
        """What the environment renders."""
        return self._fleet.render()[0]

    def apply(self, function: Callable[[Any], Any]) -> Any:
        """What `function(env)` returns, called where the environment lives."""
        return self._fleet.apply(function)[0]

    def rebuild(self) -> None:
        """A fresh environment in the place of this one."""
        self._fleet.rebuild()

    def close(self) -> None:
        """Closes the environment and ends its worker."""
        if not self._fleet.closed:
            self._fleet.close()

    def _batched(self, action: Any) -> Any:
        if self._one_action:
            self._actions[0] = action
            return self._actions
        space = self.action_space
        leaves = leaves_of(space)
        if not all(leaf.fixed for leaf in leaves):
            return (action,)
        return rebuild(space, {leaf.path: np.asarray(pick(action, leaf.path))[None] for leaf in leaves})

    def _first(self, batch: Any) -> Any:
        space = self.observation_space
        return rebuild(space, {leaf.path: pick(batch, leaf.path)[0] for leaf in leaves_of(space)})


def _own_info(infos: dict[str, Any]) -> dict[str, Any]:
    """The info of the only environment, from those of a vector environment."""
    info: dict[str, Any] = {}
    for key, value in infos.items():
        given = infos.get(f"_{key}")
        if given is not None and given[0]:
            info[key] = _own_info(value) if isinstance(value, dict) else value[0]
    return info
