"""Products of matrices, by the faster of torch's two libraries.

Torch multiplies matrices of float32 by MKL, which has no AVX-512 kernels for processors by AMD. oneDNN, which torch
uses for convolutions, has them: its products of more than about a million multiplications take half the time there.
Smaller ones, other processors and other devices stay with torch's own choice. The choice depends on the processor, the
shapes and the order of the numbers in memory only, so a run gives the same bits again.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from envfleet.fleet.numerics import prefers_onednn

__all__ = ["linear", "product"]

_LEAST = 2**20  # multiplications from which oneDNN is faster


def product(
    left: Tensor, right: Tensor, bias: Tensor | None = None, *, factor: float = 1.0, out: Tensor | None = None
) -> Tensor:
    """Return factor * (left @ right + bias) for matrices, or for stacks [network, ...] with a bias [network, 1, n].

    It records no gradients: it is for passes whose backward pass is explicit.
    """
    stacked = left.dim() == 3
    if not _use_onednn(left, right.shape[-1]):
        if bias is None:
            assert factor == 1.0
            return torch.bmm(left, right, out=out) if stacked else torch.mm(left, right, out=out)
        added = torch.baddbmm if stacked else torch.addmm
        return added(bias, left, right, beta=factor, alpha=factor, out=out)
    if not stacked:
        found = _by_onednn(left, right, bias, factor)
        return found if out is None else out.copy_(found)
    if out is None:
        out = left.new_empty(len(left), left.shape[1], right.shape[2])
    for network, of_network in enumerate(out):
        added_bias = None if bias is None else bias[network, 0]
        of_network.copy_(_by_onednn(left[network], right[network], added_bias, factor))
    return out


def linear(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return rows [batch, input] through a linear layer with weight [output, input]; with gradients, by autograd."""
    if not _use_onednn(rows, len(weight)):
        return functional.linear(rows, weight, bias)
    return cast(Tensor, _Linear.apply(rows, weight, bias))  # type: ignore[no-untyped-call]


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        wants_rows, wants_weight, _ = ctx.needs_input_grad
        ctx.save_for_backward(rows if wants_weight else None, weight if wants_rows else None)
        return product(rows, weight.t(), bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight = ctx.saved_tensors
        wants_rows, wants_weight, wants_bias = ctx.needs_input_grad
        return (
            product(gradient, weight) if wants_rows else None,
            product(gradient.t(), rows) if wants_weight else None,
            gradient.sum(0) if wants_bias else None,
        )


def _use_onednn(left: Tensor, columns: int) -> bool:
    large = left.shape[-2] * left.shape[-1] * columns >= _LEAST
    return large and prefers_onednn() and left.is_cpu and left.dtype == torch.float32


def _by_onednn(left: Tensor, right: Tensor, bias: Tensor | None, factor: float) -> Tensor:
    torch.get_num_threads()  # a new thread takes over torch's setting here; without it, oneDNN would use all cores
    if bias is not None:
        bias = bias.contiguous()  # oneDNN reads it as if it were
    found = torch.ops.mkldnn._linear_pointwise(left, right.t(), bias, "none", [], "")  # what torch.compile calls
    return cast(Tensor, found if factor == 1.0 else found.mul_(factor))
