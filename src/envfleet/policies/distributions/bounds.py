"""The bounds of a Box, and the way from actions in [-1, 1] to them and back."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from envfleet.policies.distributions.base import torch_dtype

__all__ = ["Bounds"]

Array = np.ndarray[Any, Any]


class Bounds(nn.Module):
    """Lower and upper bounds of a Box; centre and reach are numbers only if the bounds are finite."""

    centre: Tensor
    reach: Tensor

    def __init__(self, space: spaces.Box) -> None:
        super().__init__()
        self.finite = bool(np.isfinite(space.low).all() and np.isfinite(space.high).all())
        self._env_dtype, self._numpy_dtype = torch_dtype(space.dtype), np.dtype(space.dtype)
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        with np.errstate(invalid="ignore"):  # infinite bounds
            centre, reach = (low + high) / 2.0, (high - low) / 2.0
        # In the dtype of the space, so that clipping is exact; int64 for all integers, because an action out of bounds
        # may not fit the space's. No buffers: they stay on the CPU, because MPS has no float64.
        self._low, self._high = _exact(space.low), _exact(space.high)
        for name, constant in (("centre", centre), ("reach", reach)):
            self.register_buffer(name, torch.from_numpy(np.asarray(constant)).float(), persistent=False)

    def scaled(self, actions: Tensor) -> Tensor:
        """Return actions in [-1, 1] on the scale of the space."""
        return torch.addcmul(self.centre, actions, self.reach)

    def unscaled(self, actions: Array) -> Array:
        """Return actions of the environment as actions in [-1, 1]."""
        centre, reach = self._in_numpy[2:]
        with np.errstate(invalid="ignore"):  # a dimension without room has reach 0
            found = np.where(reach > 0.0, (actions - centre) / reach, 0.0)
        return np.clip(found, -1.0, 1.0).astype(np.float32)

    def clipped(self, actions: Tensor) -> Tensor:
        """Return actions in the dtype and within the bounds of the space, on the CPU."""
        if not self._env_dtype.is_floating_point:
            actions = actions.round()
        exact = actions.cpu().to(self._low.dtype)
        return torch.clamp(exact, self._low, self._high).to(self._env_dtype)

    def scaled_in_numpy(self, actions: Array) -> Array:
        """Like `scaled`."""
        centre, reach = self._in_numpy[2:]
        scaled: Array = centre + actions * reach
        return scaled

    def clipped_in_numpy(self, actions: Array) -> Array:
        """Like `clipped`."""
        low, high = self._in_numpy[:2]
        actions = np.rint(actions) if low.dtype.kind != "f" else actions
        clipped: Array = np.minimum(np.maximum(actions.astype(low.dtype, copy=False), low), high)
        return clipped.astype(self._numpy_dtype, copy=False)

    @cached_property
    def _in_numpy(self) -> tuple[Array, ...]:
        return tuple(tensor.cpu().numpy() for tensor in (self._low, self._high, self.centre, self.reach))


def _exact(bound: Array) -> Tensor:
    if bound.dtype == np.uint64:
        bound = np.minimum(bound, np.iinfo(np.int64).max)
    return torch.from_numpy(np.array(bound, bound.dtype if bound.dtype.kind == "f" else np.int64))
