"""Two MLPs on the same input, computed together: the twin critics of SAC.

The weights of both are stacked, `[twin, output, input]`, so each layer is one batched product. Plain layers with relu
have explicit gradients (`policies/relu_layers.py`). Layers with normalisation or dropout use torch's own operations.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from envfleet.policies.relu_layers import relu_layers
from envfleet.policies.weights import refuse_too_large

__all__ = ["TWINS", "Twins", "checked_sizes", "fan_in"]

Array = np.ndarray[Any, Any]

TWINS = 2
_LEVELS = 2**16  # of the random numbers for dropout


class _Layer(NamedTuple):
    weight: Tensor  # [twin, output, input]
    bias: Tensor  # [twin, 1, output]
    gain: Tensor | None = None  # [twin, 1, output], of layer normalisation
    shift: Tensor | None = None

    def frozen(self) -> _Layer:
        return _Layer(*(None if tensor is None else tensor.detach() for tensor in self))  # type: ignore[arg-type]


class Twins(nn.Module):
    """Two MLPs with the same input: `forward(rows [batch, n])` returns `[twin, batch, outputs]`.

    A hidden layer is linear, then dropout, layer normalisation and relu (Hiraoka et al. 2022), as far as enabled.
    """

    def __init__(
        self, inputs: int, hidden: tuple[int, ...], outputs: int, *, normalised: bool = False, dropout: float = 0.0
    ) -> None:
        super().__init__()
        sizes = checked_sizes(inputs, hidden, outputs)
        self.dropout, self.hidden = dropout, hidden
        self.plain, self.splits = not normalised and not dropout, True
        self.weights = nn.ParameterList(fan_in((TWINS, m, n), n) for n, m in sizes)
        self.biases = nn.ParameterList(fan_in((TWINS, 1, m), n) for n, m in sizes)
        widths = hidden if normalised else ()
        self.gains = nn.ParameterList(torch.ones(TWINS, 1, width) for width in widths)
        self.shifts = nn.ParameterList(torch.zeros(TWINS, 1, width) for width in widths)
        # A plain attribute: looking up a parameter costs as much as a small tensor operation.
        norms: list[Any] = [*zip(self.gains, self.shifts, strict=True)]
        norms += [(None, None)] * (len(sizes) - len(norms))
        self._layers = [_Layer(*layer, *norm) for *layer, norm in zip(self.weights, self.biases, norms, strict=True)]

    @property
    def layers(self) -> list[Tensor]:
        """Weight and bias of each layer of plain twins."""
        return [tensor for layer in self._layers for tensor in (layer.weight, layer.bias)]

    def forward(self, *inputs: Tensor, dropout: Tensor | None = None, frozen: bool = False) -> Tensor:
        """Return both outputs for `inputs`, each [batch, ...], side by side.

        `dropout` [batch, n] are its factors; `frozen` weights get no gradient.
        """
        layers = [layer.frozen() for layer in self._layers] if frozen else self._layers
        if self.plain:
            return relu_layers(inputs, [tensor for layer in layers for tensor in layer[:2]])
        rows = torch.cat(inputs, dim=1)
        kept = [None] * len(self.hidden) if dropout is None else self._kept(dropout)
        values = rows.expand(TWINS, *rows.shape)
        for layer, keep in zip(layers[:-1], kept, strict=True):
            values = torch.baddbmm(layer.bias, values, layer.weight.transpose(1, 2))
            if keep is not None:
                values = values * keep
            if layer.gain is not None and layer.shift is not None:
                values = functional.layer_norm(values, values.shape[-1:]) * layer.gain + layer.shift
            values = torch.relu(values)
        return torch.baddbmm(layers[-1].bias, values, layers[-1].weight.transpose(1, 2))

    def draw_dropout(self, generator: np.random.Generator, shape: tuple[int, ...]) -> Array | None:
        """Sample the factors of dropout, 0 or 1 / (1 - dropout): float32 [*shape, n]. None without dropout."""
        if not self.dropout:
            return None
        drawn = generator.integers(0, _LEVELS, (*shape, TWINS * sum(self.hidden)), np.uint16)
        return np.where(drawn < round(self.dropout * _LEVELS), np.float32(0.0), np.float32(1.0 / (1.0 - self.dropout)))

    def _kept(self, dropout: Tensor) -> list[Tensor]:
        """Split the factors [rows, n] by hidden layer: [twin, rows, width] each."""
        parts = torch.split(dropout, [TWINS * width for width in self.hidden], dim=1)
        return [part.view(len(part), TWINS, -1).transpose(0, 1) for part in parts]


def checked_sizes(inputs: int, hidden: tuple[int, ...], outputs: int) -> list[tuple[int, int]]:
    """Return inputs and outputs of each layer of the twins; raises SettingsError if they are too large."""
    sizes = list(pairwise((inputs, *hidden, outputs)))
    weights = TWINS * sum((n + 1) * m for n, m in sizes)
    refuse_too_large(f"twin critics of {' and '.join(map(str, hidden))} units", weights)
    return sizes


def fan_in(shape: tuple[int, ...], inputs: int) -> nn.Parameter:
    """Uniform weights as in `nn.Linear`, which published results of SAC used."""
    bound = 1.0 / math.sqrt(inputs)
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))
