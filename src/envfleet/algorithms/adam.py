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
    """Adam that updates all weights in one call, or those `apart` in a second one with their own learning rate."""

    def __init__(
        self,
        flat: FlatParameters,
        *,
        epsilon: float,
        betas: tuple[float, float] = (0.9, 0.999),
        apart: slice | None = None,
    ) -> None:
        self._epsilon, self._betas = epsilon, betas
        self._first = torch.zeros_like(flat.gradient)
        self._second = torch.zeros_like(flat.gradient)
        self._steps = torch.zeros((), dtype=torch.float32, device=flat.gradient.device)
        arrays = (flat.parameters.detach(), flat.gradient, self._first, self._second)
        spans = [[slice(None)]] if apart is None else [[slice(apart.start), slice(apart.stop, None)], [apart]]
        # Per learning rate: the lists of weights, gradients and moments, as the kernel takes them.
        self._groups = [[[array[span] for span in group] for array in arrays] for group in spans]
        self._public = None if kernel_works() else self._public_adam()

    def step(self, *learning_rates: float) -> None:
        """Make one gradient step. With weights `apart`, theirs is the second learning rate."""
        self._steps += 1
        for number, (group, rate) in enumerate(zip(self._groups, learning_rates, strict=True)):
            if self._public is not None:
                self._step_publicly(number, rate)
                continue
            steps = [self._steps] * len(group[0])
            _call_kernel(*group, [], steps, lr=rate, betas=self._betas, epsilon=self._epsilon)

    def _step_publicly(self, number: int, rate: float) -> None:
        assert self._public is not None
        weights, gradients, *_ = self._groups[number]
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.grad = gradient
            self._public[number].state[weight]["step"] = self._steps - 1  # it counts on from there
        self._public[number].param_groups[0]["lr"] = rate
        self._public[number].step()

    def _public_adam(self) -> list[torch.optim.Adam]:
        """Return torch's optimisers over the same memory, so that `state` and `restore` work unchanged."""
        found = []
        for weights, _, first, second in self._groups:
            adam = torch.optim.Adam(weights, betas=self._betas, eps=self._epsilon, fused=True)
            for weight, *moments in zip(weights, first, second, strict=True):
                adam.state[weight] = {"step": self._steps, "exp_avg": moments[0], "exp_avg_sq": moments[1]}
            found.append(adam)
        return found

    def state(self) -> dict[str, Array]:
        """Return the moments and the step count as plain arrays."""
        parts = {"first": self._first, "second": self._second, "steps": self._steps}
        return {name: tensor.cpu().numpy().copy() for name, tensor in parts.items()}

    def restore(self, state: dict[str, Array]) -> None:
        """Restore the result of `state`."""
        for tensor, name in ((self._first, "first"), (self._second, "second"), (self._steps, "steps")):
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
