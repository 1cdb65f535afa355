"""Uniformly random actions that respect action masks, for one environment and for a vector environment."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv

__all__ = ["RandomAgent", "RandomBatch", "choices_of", "mask_parts"]

Array = np.ndarray[Any, Any]


class RandomAgent:
    """Random actions for one environment; the same seed and masks give the same actions.

    A mask that does not fit the action space is ignored.
    """

    def __init__(self, space: spaces.Space[Any], seed: int) -> None:
        self._space: Any = copy.deepcopy(space)  # do not touch the generator of the environment's space
        self._space.seed(seed)
        self._choices = choices_of(space)

    def reset(self) -> None:
        """Has no memory to clear."""

    def __call__(self, observation: Any, info: dict[str, Any]) -> Any:
        mask = info.get("action_mask")
        parts = None if mask is None or self._choices is None else mask_parts(mask, self._choices)
        if parts is None:
            return self._space.sample()
        if isinstance(self._space, spaces.MultiBinary):  # for Gymnasium, 0 forces a bit to 0 and 2 leaves it free
            return self._space.sample(mask=2 * parts[0].reshape(self._space.shape))
        return self._space.sample(mask=parts[0] if isinstance(self._space, spaces.Discrete) else tuple(parts))


class RandomBatch:
    """Random actions for all environments of a vector environment; masks apply to Discrete actions.

    Without a seed, the actions come from the generator of the vector environment's action space.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], seed: int | None = None) -> None:
        self._space = env.action_space
        if seed is not None:
            self._space = copy.deepcopy(env.action_space)
            self._space.seed(seed)
        self._single, self._n_envs = env.single_action_space, env.num_envs
        self._allowed: Array | None = None  # [env, action], once a mask was seen

    def see(self, infos: dict[str, Any], rows: Array | slice = slice(None)) -> None:
        """Keep the masks in the infos of these environments; without a mask, all actions are allowed."""
        if not isinstance(self._single, spaces.Discrete) or ("action_mask" not in infos and self._allowed is None):
            return
        if self._allowed is None:
            self._allowed = np.ones((self._n_envs, int(self._single.n)), np.bool_)
        self._allowed[rows] = True
        for row in np.flatnonzero(infos.get("_action_mask", ())):
            self._allowed[row] = infos["action_mask"][row]

    def __call__(self, _observations: Any) -> Any:
        if self._allowed is None:
            return self._space.sample()
        # All at once: `space.sample(mask=...)` draws for one environment after the other, 40 times slower.
        draws = np.where(self._allowed, self._space.np_random.random(self._allowed.shape), -1.0)
        return draws.argmax(axis=1) + self._single.start  # type: ignore[attr-defined]  # it is Discrete


def choices_of(space: Any) -> list[int] | None:
    """Number of choices of each part of an action; None for spaces that cannot be masked."""
    if isinstance(space, spaces.Discrete):
        return [int(space.n)]
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
        return [int(size) for size in space.nvec]
    if isinstance(space, spaces.MultiBinary):
        return [math.prod(space.shape)]
    return None


def mask_parts(mask: Any, sizes: list[int]) -> list[Array] | None:
    """One array of 0 and 1 per part of the action, or None if the mask does not fit."""
    try:
        if isinstance(mask, tuple):
            parts = [np.asarray(part) for part in mask]
        else:
            whole = np.asarray(mask).reshape(-1)  # a MultiBinary may have several dimensions
            if whole.shape != (sum(sizes),):
                return None
            parts = np.split(whole, np.cumsum(sizes)[:-1])
    except ValueError:  # ragged
        return None
    if [part.shape for part in parts] != [(size,) for size in sizes]:
        return None
    if not all(np.isin(part, (0, 1)).all() for part in parts):
        return None
    return [part.astype(np.int8) for part in parts]
