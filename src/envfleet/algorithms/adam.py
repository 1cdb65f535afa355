"""Adam over the flat array of all weights.

It calls the kernel of `torch.optim.Adam(fused=True)` directly. For networks of a few thousand weights, the code around
the kernel takes several times as long as the arithmetic. The kernel is private to torch. If it is missing or its
signature has changed, `torch.optim.Adam` is used: slower, with bit-identical results.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch

from envfleet.policies.flat import FlatParameters

__all__ = ["FlatAdam"]

Array = np.ndarray[Any, Any]


class FlatAdam:
    """Adam that updates all weights in one call."""

    def __init__(self, flat: FlatParameters, *, epsilon: float, betas: tuple[float, float] = (0.9, 0.999)) -> None:
        self._weights = [flat.parameters.detach()]
        self._gradients = [flat.gradient]
        self._epsilon, self._betas = epsilon, betas
        self._first = [torch.zeros_like(flat.gradient)]
        self._second = [torch.zeros_like(flat.gradient)]
        self._steps = [torch.zeros((), dtype=torch.float32, device=flat.gradient.device)]
        self._public = None if kernel_works() else self._public_adam()

    def step(self, learning_rate: float) -> None:
        """Make one gradient step."""
        if self._public is not None:
            self._weights[0].grad = self._gradients[0]
            self._public.param_groups[0]["lr"] = learning_rate
            self._public.step()
            return
        self._steps[0] += 1
        _call_kernel(
            self._weights,
            self._gradients,
            self._first,
            self._second,
            [],
            self._steps,
            lr=learning_rate,
            betas=self._betas,
            epsilon=self._epsilon,
        )

    def _public_adam(self) -> torch.optim.Adam:
        """Return torch's optimiser over the same memory, so that `state` and `restore` work unchanged."""
        adam = torch.optim.Adam(self._weights, betas=self._betas, eps=self._epsilon, fused=True)
        adam.state[self._weights[0]] = {
            "step": self._steps[0],
            "exp_avg": self._first[0],
            "exp_avg_sq": self._second[0],
        }
        return adam

    def state(self) -> dict[str, Array]:
        """Return the moments and the step count as plain arrays."""
        parts = {"first": self._first[0], "second": self._second[0], "steps": self._steps[0]}
        return {name: tensor.cpu().numpy().copy() for name, tensor in parts.items()}

    def restore(self, state: dict[str, Array]) -> None:
        """Restore the result of `state`."""
        for tensor, name in ((self._first[0], "first"), (self._second[0], "second"), (self._steps[0], "steps")):
            tensor.copy_(torch.from_numpy(np.asarray(state[name])))


def _call_kernel(*arrays: list[torch.Tensor], lr: float, betas: tuple[float, float], epsilon: float) -> None:
    torch._fused_adam_(
        *arrays,
        lr=lr,
        beta1=betas[0],
        beta2=betas[1],
        weight_decay=0.0,
        eps=epsilon,
        amsgrad=False,
        maximize=False,
    )


@cache
def kernel_works() -> bool:
    """Whether this torch has the kernel with our signature: the first Adam step moves a weight by the learning rate."""
    weight, gradient = torch.zeros(1), torch.ones(1)
    try:
        _call_kernel(
            [weight], [gradient], [torch.zeros(1)], [torch.zeros(1)], [], [torch.ones(())],
            lr=0.5, betas=(0.9, 0.999), epsilon=0.0,
        )  # fmt: skip
    except (AttributeError, RuntimeError, TypeError):
        return False
    return bool(torch.isclose(weight, torch.tensor(-0.5)).item())
