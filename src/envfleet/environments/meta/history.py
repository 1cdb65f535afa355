"""The wrapper `history` adds the previous action and reward to the observation, for policies with memory."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from envfleet.errors import SettingsError

__all__ = ["History"]


class History(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Adds the previous action (one-hot if discrete) and the previous reward to the observation; both begin as zero.

    A vector of floats becomes a longer vector: state, action, reward. Any other observation becomes a Dict with the
    entries `observation`, `action` and `reward`. A trial (`envfleet.environments.meta.Trial`) needs no such wrapper.
    The wrapper keeps nothing between steps, so it has no state to save.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)
        seen, action = env.observation_space, env.action_space
        if not action.is_np_flattenable:
            raise SettingsError(
                f"the wrapper history adds the previous action to the observation, and cannot write an action of "
                f"{action} as numbers",
                hint="use actions of a Box, Discrete, MultiDiscrete or MultiBinary space",
            )
        flat = spaces.flatten_space(action)
        assert isinstance(flat, spaces.Box)
        zero = np.zeros(flat.shape)  # before the first action, whatever the bounds
        of_action = spaces.Box(
            np.minimum(flat.low, zero).astype(np.float32), np.maximum(flat.high, zero).astype(np.float32)
        )
        of_reward = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self._size = int(flat.shape[0])
        self._joined = isinstance(seen, spaces.Box) and len(seen.shape) == 1 and seen.dtype.kind == "f"
        self.observation_space: spaces.Space[Any]
        if not self._joined:
            self.observation_space = spaces.Dict({"observation": seen, "action": of_action, "reward": of_reward})
            return
        assert isinstance(seen, spaces.Box)
        low, high = (
            np.concatenate([np.float32(getattr(each, end)) for each in (seen, of_action, of_reward)])
            for end in ("low", "high")
        )
        self.observation_space = spaces.Box(low, high, dtype=np.float32)

    def history_parts(self) -> dict[str, tuple[str, int, int]]:
        """Where the observation has the previous action and reward; see `envfleet.capabilities.HasHistory`."""
        if not self._joined:
            return {"action": ("action", 0, self._size), "reward": ("reward", 0, 1)}
        shape = self.observation_space.shape
        assert shape is not None
        reward = shape[0] - 1
        return {"action": ("", reward - self._size, reward), "reward": ("", reward, reward + 1)}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        seen, info = self.env.reset(seed=seed, options=options)
        return self._see(seen, np.zeros(self._size, np.float32), 0.0), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        seen, reward, terminated, truncated, info = self.env.step(action)
        taken = np.asarray(spaces.flatten(self.env.action_space, action), np.float32)
        return self._see(seen, taken, float(reward)), reward, terminated, truncated, info

    def _see(self, seen: Any, action: Any, reward: float) -> Any:
        last = np.array([reward], np.float32)
        if self._joined:
            return np.concatenate([np.asarray(seen, np.float32), action, last])
        return {"observation": seen, "action": action, "reward": last}
