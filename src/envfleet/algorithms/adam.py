"""Adam over the one flat array that holds all weights.

The kernel is the one that `torch.optim.Adam(fused=True)` calls. What is left out is the machinery around it, which
takes several times as long as the arithmetic for networks of a few thousand weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from envfleet.policies.flat import FlatParameters

__all__ = ["FlatAdam"]

Array = np.ndarray[Any, Any]


class FlatAdam:
    """Moves all weights by one call."""

    def __init__(self, flat: FlatParameters, *, epsilon: float, betas: tuple[float, float] = (0.9, 0.999)) -> None:
        self._weights = [flat.parameters.detach()]
        self._gradients = [flat.gradient]
        self._epsilon, self._betas = epsilon, betas
        self._first = [torch.zeros_like(flat.gradient)]
        self._second = [torch.zeros_like(flat.gradient)]
        self._steps = [torch.zeros((), dtype=torch.float32, device=flat.gradient.device)]

    def step(self, learning_rate: float) -> None:
        """One step along the gradient."""
        self._steps[0] += 1
        torch._fused_adam_(
            self._weights,
            self._gradients,
            self._first,
            self._second,
            [],
            self._steps,
            lr=learning_rate,
            beta1=self._betas[0],
            beta2=self._betas[1],
            weight_decay=0.0,
            eps=self._epsilon,
            amsgrad=False,
            maximize=False,
        )

    def state(self) -> dict[str, Array]:
        """Its moments, as plain arrays."""
        parts = {"first": self._first[0], "second": self._second[0], "steps": self._steps[0]}
        return {name: tensor.cpu().numpy().copy() for name, tensor in parts.items()}

    def restore(self, state: dict[str, Array]) -> None:
        """Goes on from what `state` gave."""
        for tensor, name in ((self._first[0], "first"), (self._second[0], "second"), (self._steps[0], "steps")):
            tensor.copy_(torch.from_numpy(np.asarray(state[name])))
