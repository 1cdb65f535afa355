"""A backward pass that starts from given gradients, without `torch.autograd.backward(outputs, gradients)`.

Given gradients, torch compares their shapes symbolically. For that it imports sympy and some 480 other modules: half a
second or more in the middle of the first update.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["backward"]


def backward(outputs: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
    """Propagate the gradients of `outputs` to the `.grad` of the weights."""
    for output, gradient in zip(outputs, gradients, strict=True):
        assert output.shape == gradient.shape, f"{output.shape} and {gradient.shape}"
    with torch.enable_grad():
        start: Tensor = _Start.apply(len(outputs), *outputs, *gradients)  # type: ignore[no-untyped-call]
    start.backward()  # type: ignore[no-untyped-call]


class _Start(torch.autograd.Function):
    """A scalar whose derivative with respect to each output is the given gradient."""

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors[count:])
        return tensors[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor | None, ...]:
        gradients = ctx.saved_tensors
        return (None, *gradients, *([None] * len(gradients)))
