"""Linear layers with relu between them, as one `autograd.Function`: the MLPs of SAC's actor and critics.

Autograd would record every operation. Here a pass is one node, and it computes only the gradients that are needed:
those of the weights for the critics' loss, that of the action for the actor's. Several networks may read the same rows.
Their weights are then stacked, so that each layer is one batched product.

With two threads, a pass is cut into two pieces: one network each, or one half of the rows. Two threads that each run a
whole update on half of a batch would meet at every small operation, because Python runs in one thread at a time. They
took half as much CPU time again as one thread. Here only the layers run side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from envfleet.policies.learner_threads import LearnerThreads

__all__ = ["relu_layers"]

T = TypeVar("T")
Cut = Callable[[Tensor], Tensor]  # returns a piece of a tensor [network, rows, n]


def relu_layers(
    inputs: Sequence[Tensor],
    tensors: Sequence[Tensor],
    graded: int | None = None,
    threads: LearnerThreads | None = None,
) -> Tensor:
    """Return the outputs [network, rows, n] of layers that read `inputs`, each [rows, ...], side by side.

    `tensors` are weight [network, output, input] and bias of each layer; one network may leave out the first dimension.
    Only the first `graded` rows have a gradient, by default all.
    """
    found = _ReluLayers.apply(len(inputs), graded, threads, *inputs, *tensors)  # type: ignore[no-untyped-call]
    return cast(Tensor, found)


class _ReluLayers(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, parts: int, graded: int | None, threads: LearnerThreads | None, *given: Tensor) -> Tensor:
        inputs, tensors = given[:parts], given[parts:]
        weights = [weight.view(-1, *weight.shape[-2:]) for weight in tensors[::2]]
        biases = [bias.view(len(weights[0]), 1, -1) for bias in tensors[1::2]]
        rows = inputs[0] if parts == 1 else torch.cat(inputs, dim=1)
        seen = [rows.expand(len(weights[0]), *rows.shape)]  # by each layer, then the outputs
        seen += [rows.new_empty(*seen[0].shape[:2], weight.shape[1]) for weight in weights]

        def run(cut: Cut, cut_weights: Cut) -> None:
            for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
                values = cut(seen[layer + 1])
                torch.baddbmm(cut_weights(bias), cut(seen[layer]), cut_weights(weight).transpose(1, 2), out=values)
                if layer < len(weights) - 1:
                    values.relu_()

        _in_pieces(run, seen[0], threads)
        ctx.graded, ctx.threads, ctx.shapes = graded, threads, [tensor.shape for tensor in given]
        ctx.save_for_backward(*(values[:, :graded] for values in seen[:-1]), *weights)
        return seen[-1]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        depth = len(ctx.saved_tensors) // 2
        seen, weights = ctx.saved_tensors[:depth], ctx.saved_tensors[depth:]
        parts = len(ctx.shapes) - 2 * depth
        wants_weights = ctx.needs_input_grad[3 + parts]
        gradients = [*map(torch.empty_like, seen[1:]), gradient[:, : ctx.graded]]  # of each layer's outputs

        def run(cut: Cut, cut_weights: Cut) -> list[Tensor]:
            found = []
            for layer in range(depth - 1, -1, -1):
                after, before = cut(gradients[layer]), cut(seen[layer])
                if wants_weights:
                    found += [after.sum(1), _over_rows(after, before)]
                if layer:
                    values = torch.bmm(after, cut_weights(weights[layer]), out=cut(gradients[layer - 1]))
                    torch.ops.aten.threshold_backward.grad_input(values, before, 0.0, grad_input=values)
            return found[::-1]

        pieces = _in_pieces(run, seen[0], ctx.threads)
        of_tensors: list[Tensor | None] = [None] * (2 * depth)
        if wants_weights:
            of_tensors = [
                _joined(found, len(weights[0])).view(shape)
                for *found, shape in zip(*pieces, ctx.shapes[parts:], strict=True)
            ]
        of_inputs, column = [], 0
        for shape, wanted in zip(ctx.shapes[:parts], ctx.needs_input_grad[3:], strict=False):
            columns = slice(column, column := column + shape[1])
            of_inputs.append(_of_input(gradients[0], weights[0][:, :, columns], shape[0]) if wanted else None)
        return (None, None, None, *of_inputs, *of_tensors)


def _in_pieces(run: Callable[[Cut, Cut], T], rows: Tensor, threads: LearnerThreads | None) -> list[T]:
    """Call `run` with functions that cut rows [network, rows, n] and weights [network, ...], once for each piece."""
    if threads is None or threads.count == 1:
        return [run(_whole, _whole)]
    half = (rows.shape[1] + 1) // 2

    def piece(number: int) -> T:
        def network(tensor: Tensor) -> Tensor:
            return tensor[number : number + 1]

        def half_of_rows(tensor: Tensor) -> Tensor:
            return tensor[:, number * half : (number + 1) * half]

        with torch.no_grad():  # applies only to the current thread
            return run(network, network) if len(rows) > 1 else run(half_of_rows, _whole)

    return threads.map(piece, (0, 1))


def _whole(tensor: Tensor) -> Tensor:
    return tensor


def _joined(pieces: list[Tensor], networks: int) -> Tensor:
    """Join the gradients of a weight: pieces have a network each, or each a part of the rows."""
    if len(pieces) == 1:
        return pieces[0]
    return torch.cat(pieces) if networks > 1 else pieces[0] + pieces[1]


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
