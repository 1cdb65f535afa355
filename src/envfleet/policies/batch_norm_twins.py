"""Twin critics with batch normalisation before every layer, which need no target networks (CrossQ).

    y = W norm(relu(W norm(x) + b)) + b,    norm(x) = gain (x - mean) / sqrt(variance + epsilon) + shift

Trained weights use mean and variance of the batch, and running means of both are kept. Frozen weights use the running
ones. Normalising is then linear, so it is folded into the next layer, and the pass costs as much as that of plain
layers. Bhatt et al. 2024, https://arxiv.org/abs/1902.05605
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from envfleet.policies.relu_layers import relu_layers
from envfleet.policies.twins import TWINS, checked_sizes, fan_in

__all__ = ["BatchNormTwins"]

Array = np.ndarray[Any, Any]
_EPSILON = 1e-5
_NEW = 0.01  # weight of a batch in the running statistics


class BatchNormTwins(nn.Module):
    """Two MLPs with the same input: `forward(rows [batch, n])` returns `[twin, batch, outputs]`."""

    def __init__(self, inputs: int, hidden: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        sizes = checked_sizes(inputs, hidden, outputs)
        self.plain, self.splits = False, False  # statistics are those of the whole batch
        self.weights = nn.ParameterList(fan_in((TWINS, m, n), n) for n, m in sizes)
        self.biases = nn.ParameterList(fan_in((TWINS, 1, m), n) for n, m in sizes)
        self.gains = nn.ParameterList(torch.ones(TWINS, 1, n) for n, _ in sizes)
        self.shifts = nn.ParameterList(torch.zeros(TWINS, 1, n) for n, _ in sizes)
        for depth, (n, _) in enumerate(sizes):
            self.register_buffer(f"mean_{depth}", torch.zeros(TWINS, 1, n))
            self.register_buffer(f"variance_{depth}", torch.ones(TWINS, 1, n))

    def forward(self, *inputs: Tensor, dropout: Tensor | None = None, frozen: bool = False) -> Tensor:
        """Return both outputs for `inputs`, each [batch, ...], side by side; `frozen` weights get no gradient."""
        assert dropout is None
        if frozen:
            return relu_layers(inputs, self._folded())
        rows = torch.cat(inputs, dim=1)
        values = [rows] * TWINS
        for depth in range(len(self.weights)):
            trained = (self.weights[depth], self.biases[depth], self.gains[depth], self.shifts[depth])
            of_twins = zip(values, *(tensor.unbind() for tensor in (*trained, *self._statistics(depth))), strict=True)
            values = [_layer(*given, first=depth == 0) for given in of_twins]
        return torch.stack(values)

    def draw_dropout(self, generator: np.random.Generator, shape: tuple[int, ...]) -> Array | None:
        """Return None: there is no dropout."""
        return None

    @torch.no_grad()
    def _folded(self) -> list[Tensor]:
        """Return weight and bias of each layer with the running statistics before it folded in."""
        found = []
        for depth, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            mean, variance = self._statistics(depth)
            scale = self.gains[depth] * torch.rsqrt(variance + _EPSILON)
            offset = torch.addcmul(self.shifts[depth], mean, scale, value=-1.0)
            found += [weight * scale, torch.baddbmm(bias, offset, weight.transpose(1, 2))]
        return found

    def _statistics(self, depth: int) -> tuple[Tensor, Tensor]:
        return getattr(self, f"mean_{depth}"), getattr(self, f"variance_{depth}")


def _layer(
    values: Tensor,
    weight: Tensor,
    bias: Tensor,
    gain: Tensor,
    shift: Tensor,
    mean: Tensor,
    variance: Tensor,
    *,
    first: bool,
) -> Tensor:
    """Return the output of one twin's layer; updates the running statistics in place."""
    values = values if first else torch.relu(values)
    values = functional.batch_norm(values, mean[0], variance[0], gain[0], shift[0], True, _NEW, _EPSILON)
    return functional.linear(values, weight, bias[0])
