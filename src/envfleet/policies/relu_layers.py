"""Linear layers with relu between them, with explicit gradients: the MLPs of SAC's actor and critics.

Autograd would record every operation. `relu_layers` is one node of its graph, and computes only the gradients that are
needed: those of the weights for the critics' loss, that of the action for the actor's. `ReluLayers` makes the same
operations without a graph, into memory that it keeps. Several networks may read the same rows. Their weights are then
stacked, so that each layer is one batched product.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from envfleet.policies.products import product

__all__ = ["ReluLayers", "relu_layers"]


def relu_layers(inputs: Sequence[Tensor], tensors: Sequence[Tensor], graded: int | None = None) -> Tensor:
    """Return the outputs [network, rows, n] of layers that read `inputs`, each [rows, ...], side by side.

    `tensors` are weight [network, output, input] and bias of each layer; one network may leave out the first dimension.
    Only the first `graded` rows have a gradient, by default all.
    """
    found = _ReluLayers.apply(len(inputs), graded, *inputs, *tensors)  # type: ignore[no-untyped-call]
    return cast(Tensor, found)


class _ReluLayers(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, parts: int, graded: int | None, *given: Tensor) -> Tensor:
        inputs, tensors = given[:parts], given[parts:]
        weights = [weight.view(-1, *weight.shape[-2:]) for weight in tensors[::2]]
        networks = weights[0].shape[0]
        rows = inputs[0] if parts == 1 else torch.cat(inputs, dim=1)
        seen = [rows.expand(networks, -1, -1)]  # by each layer
        for weight, bias in zip(weights, tensors[1::2], strict=True):
            if len(seen) > 1:
                seen[-1].relu_()
            seen.append(product(seen[-1], weight.transpose(1, 2), bias.view(networks, 1, -1)))
        outputs = seen.pop()
        ctx.graded, ctx.shapes = graded, [tensor.shape for tensor in given]
        ctx.save_for_backward(*(seen if graded is None else [values[:, :graded] for values in seen]), *weights)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        depth = len(ctx.saved_tensors) // 2
        seen, weights = ctx.saved_tensors[:depth], ctx.saved_tensors[depth:]
        parts = len(ctx.shapes) - 2 * depth
        wants_weights = ctx.needs_input_grad[2 + parts]
        after = gradient[:, : ctx.graded]  # the gradient of a layer's outputs
        of_tensors: list[Tensor | None] = []
        for layer in range(depth - 1, -1, -1):
            if wants_weights:
                of_tensors += [after.sum(1), _over_rows(after, seen[layer])]
            if layer:
                after = product(after, weights[layer])
                torch.ops.aten.threshold_backward.grad_input(after, seen[layer], 0.0, grad_input=after)
        of_tensors = [
            None if found is None else found.view(shape)
            for found, shape in zip(of_tensors[::-1] or [None] * (2 * depth), ctx.shapes[parts:], strict=True)
        ]
        of_inputs, column = [], 0
        for shape, wanted in zip(ctx.shapes[:parts], ctx.needs_input_grad[2:], strict=False):
            columns = slice(column, column := column + shape[1])
            of_inputs.append(_of_input(after, weights[0][:, :, columns], shape[0]) if wanted else None)
        return (None, None, *of_inputs, *of_tensors)


class ReluLayers:
    """The same layers without autograd. A pass overwrites the values of the one before it."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        """`tensors` as for `relu_layers`. They, and their gradients if they have some, must stay where they are."""
        self._weights = [weight.detach().view(-1, *weight.shape[-2:]) for weight in tensors[::2]]
        networks = len(self._weights[0])
        self._across = [weight.transpose(1, 2) for weight in self._weights]
        self._biases = [bias.detach().view(networks, 1, -1) for bias in tensors[1::2]]
        # All have one, or none has: target networks and copies learn nothing.
        gradients = [tensor.grad for tensor in tensors if tensor.grad is not None]
        self._of_weights = [
            each.view_as(weight) for each, weight in zip(gradients[::2], self._weights, strict=bool(gradients))
        ]
        self._of_biases = [
            each.view_as(bias) for each, bias in zip(gradients[1::2], self._biases, strict=bool(gradients))
        ]
        self._rows = -1
        self._outputs: list[Tensor] = []  # of each layer
        self._of_outputs: list[Tensor] = []  # their gradients, except those of the last layer
        self._seen: list[Tensor] = []  # by each layer

    def forward(self, rows: Tensor) -> Tensor:
        """Return the outputs [network, rows, n] for rows [rows, ...]; the next pass overwrites them."""
        networks = len(self._weights[0])
        if len(rows) != self._rows:
            self._rows = len(rows)
            self._outputs = [rows.new_empty(networks, len(rows), weight.shape[1]) for weight in self._weights]
            self._of_outputs = [torch.empty_like(values) for values in self._outputs[:-1]]
        values = rows.expand(networks, -1, -1)
        self._seen = [values, *self._outputs[:-1]]
        for layer, outputs in enumerate(self._outputs):
            if layer:
                values.relu_()
            product(values, self._across[layer], self._biases[layer], out=outputs)
            values = outputs
        return values

    def set_gradients(self, gradient: Tensor) -> None:
        """Set the gradients of the weights, from that of the outputs of the first rows [network, rows, n]."""
        for layer, after, seen in self._backwards(gradient):
            torch.sum(after, 1, keepdim=True, out=self._of_biases[layer])
            _over_rows(after, seen, self._of_weights[layer])

    def gradient_of_inputs(self, gradient: Tensor, columns: slice) -> Tensor:
        """Return the gradient of some columns of the rows [rows, n], from that of the outputs."""
        *_, (_, after, _) = self._backwards(gradient)
        return _of_input(after, self._weights[0][:, :, columns], len(self._seen[0][0]))

    def _backwards(self, gradient: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Yield each layer with the gradient of its outputs and what it has seen, from the last to the first."""
        rows = gradient.shape[1]
        for layer in range(len(self._weights) - 1, -1, -1):
            seen = self._seen[layer][:, :rows]
            yield layer, gradient, seen
            if layer:
                gradient = product(gradient, self._weights[layer], out=self._of_outputs[layer - 1][:, :rows])
                torch.ops.aten.threshold_backward.grad_input(gradient, seen, 0.0, grad_input=gradient)


# A product is up to four times as fast if the longer side of the result comes last.


def _over_rows(gradient: Tensor, values: Tensor, out: Tensor | None = None) -> Tensor:
    """Return the gradient of a weight [network, output, input]."""
    if values.shape[2] < gradient.shape[2]:
        found = product(values.transpose(1, 2), gradient).transpose(1, 2)
        return found if out is None else out.copy_(found)
    return product(gradient.transpose(1, 2), values, out=out)


def _of_input(gradient: Tensor, weight: Tensor, rows: int) -> Tensor:
    """Return the gradient of an input [rows, n], which is zero behind the rows of `gradient`."""
    found = product(weight.transpose(1, 2), gradient.transpose(1, 2)).sum(0).t()
    if len(found) == rows:
        return found
    return torch.cat([found, found.new_zeros(rows - len(found), found.shape[1])])
