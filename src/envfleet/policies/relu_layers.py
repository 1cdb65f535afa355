"""Linear layers with relu between them, as one `autograd.Function`: the MLPs of SAC's actor and critics.

Autograd would record every operation. Here a pass is one node, and it computes only the gradients that are needed:
those of the weights for the critics' loss, that of the action for the actor's. Several networks may read the same rows.
Their weights are then stacked, so that each layer is one batched product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

__all__ = ["relu_layers"]


def relu_layers(inputs: Sequence[Tensor], tensors: Sequence[Tensor], graded: int | None = None) -> Tensor:
    """Return the outputs [network, rows, n] of layers that read `inputs`, each [rows, ...], side by side.

    `tensors` are weight [network, output, input] and bias of each layer; one network may leave out the first dimension.
    Only the first `graded` rows have a gradient, by default all.
    """
    return cast(Tensor, _ReluLayers.apply(len(inputs), graded, *inputs, *tensors))  # type: ignore[no-untyped-call]


class _ReluLayers(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, parts: int, graded: int | None, *given: Tensor) -> Tensor:
        inputs, tensors = given[:parts], given[parts:]
        weights = [weight.view(-1, *weight.shape[-2:]) for weight in tensors[::2]]
        biases = [bias.view(len(weights[0]), 1, -1) for bias in tensors[1::2]]
        rows = inputs[0] if parts == 1 else torch.cat(inputs, dim=1)
        values = rows.expand(len(weights[0]), *rows.shape)
        seen = [values[:, :graded]]
        for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
            values = torch.baddbmm(bias, values, weight.transpose(1, 2)).relu_()
            seen.append(values[:, :graded])
        ctx.graded, ctx.shapes = graded, [tensor.shape for tensor in given]
        ctx.save_for_backward(*seen, *weights)
        return torch.baddbmm(biases[-1], values, weights[-1].transpose(1, 2))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        depth = len(ctx.saved_tensors) // 2
        seen, weights = ctx.saved_tensors[:depth], ctx.saved_tensors[depth:]
        parts = len(ctx.shapes) - 2 * depth
        shapes, wants_weights = ctx.shapes[parts:], ctx.needs_input_grad[2 + parts]
        gradient = gradient[:, : ctx.graded]
        of_tensors: list[Tensor | None] = [None] * (2 * depth)
        for layer in range(depth - 1, -1, -1):
            if wants_weights:
                of_tensors[2 * layer] = _over_rows(gradient, seen[layer]).view(shapes[2 * layer])
                of_tensors[2 * layer + 1] = gradient.sum(1).view(shapes[2 * layer + 1])
            if layer:
                gradient = torch.bmm(gradient, weights[layer])
                torch.ops.aten.threshold_backward.grad_input(gradient, seen[layer], 0.0, grad_input=gradient)
        of_inputs, column = [], 0
        for shape, wanted in zip(ctx.shapes[:parts], ctx.needs_input_grad[2:], strict=False):
            columns = slice(column, column := column + shape[1])
            of_inputs.append(_of_input(gradient, weights[0][:, :, columns], shape[0]) if wanted else None)
        return (None, None, *of_inputs, *of_tensors)


# A product is up to four times as fast if the longer side of the result comes last.


def _over_rows(gradient: Tensor, values: Tensor) -> Tensor:
    """Return the gradient of a weight [network, output, input]."""
    if values.shape[2] < gradient.shape[2]:
        return torch.bmm(values.transpose(1, 2), gradient).transpose(1, 2)
    return torch.bmm(gradient.transpose(1, 2), values)


def _of_input(gradient: Tensor, weight: Tensor, rows: int) -> Tensor:
    """Return the gradient of an input [rows, n], which is zero behind the rows of `gradient`."""
    found = torch.bmm(weight.transpose(1, 2), gradient.transpose(1, 2)).sum(0).t()
    if len(found) == rows:
        return found
    return torch.cat([found, found.new_zeros(rows - len(found), found.shape[1])])
