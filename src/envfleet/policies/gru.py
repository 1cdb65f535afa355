"""A GRU over whole sequences whose episodes begin anywhere, with its way back in time written out.

    r = sigmoid(x W_r + h U_r)    z = sigmoid(x W_z + h U_z)    n = tanh(x W_n + r * (h U_n))    h' = n + z (h - n)

What does not depend on the state is one product for all steps, forward and back; the loop over time is left with
one product and a handful of small operations. Torch's own GRU cannot zero the state inside a sequence, so it has
to be called once per run between two episode starts, and its backward pass books every small operation.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

__all__ = ["gru_sequence"]


def gru_sequence(features: Tensor, state: Tensor, starts: Tensor | None, weights: list[Tensor]) -> Tensor:
    """Outputs [time, batch, units] of a sequence [time, batch, n]; the state is zeroed where `starts` [time, batch].

    `weights` are those of torch's GRU: of the input [3 units, n], of the state [3 units, units], and their biases.
    """
    return cast(Tensor, _GRUSequence.apply(features, state, starts, *weights))  # type: ignore[no-untyped-call]


class _GRUSequence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        state: Tensor,
        starts: Tensor | None,
        of_input: Tensor,
        of_state: Tensor,
        bias_input: Tensor,
        bias_state: Tensor,
    ) -> Tensor:
        time, batch, _ = features.shape
        units = state.shape[1]
        projected = torch.addmm(bias_input, features.flatten(0, 1), of_input.t()).view(time, batch, 3 * units)
        before = features.new_empty(time, batch, units)  # the state that each step began with
        outputs = features.new_empty(time, batch, units)
        gates = projected[:, :, : 2 * units].contiguous()  # r and z of each step
        candidates = projected[:, :, 2 * units :].contiguous()  # n of each step
        recalled = features.new_empty(time, batch, units)  # h U_n of each step
        fresh = _steps_that_start(starts)
        across = of_state.t()
        for t in range(time):
            if t in fresh:
                assert starts is not None
                state = state.masked_fill(starts[t].unsqueeze(1), 0.0)
            before[t] = state
            pulled = torch.addmm(bias_state, state, across)
            gate = gates[t].add_(pulled[:, : 2 * units]).sigmoid_()
            recalled[t] = last = pulled[:, 2 * units :]
            candidate = candidates[t].addcmul_(gate[:, :units], last).tanh_()
            state = torch.lerp(candidate, state, gate[:, units:])
            outputs[t] = state
        ctx.save_for_backward(features, starts, of_input, of_state, before, gates, candidates, recalled)
        return outputs

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        features, starts, of_input, of_state, before, gates, candidates, recalled = ctx.saved_tensors
        time, batch, units = gradient.shape
        of_pulled = gradient.new_empty(time, batch, 3 * units)  # gradients of h U + b, step by step
        of_projected = gradient.new_empty(time, batch, 3 * units)  # gradients of x W + b
        reset, update = gates[:, :, :units], gates[:, :, units:]
        # What the loop needs of the activations, for all steps at once.
        slope_candidate = (1.0 - candidates.square()).mul_(1.0 - update)  # d h' / d n, through tanh
        slope_update = (before - candidates).mul_(update).mul_(1.0 - update)  # d h' / d z, through sigmoid
        slope_reset = recalled.mul(reset).mul_(1.0 - reset)
        fresh = _steps_that_start(starts)
        carried = gradient.new_zeros(batch, units)
        for t in range(time - 1, -1, -1):
            carried = carried + gradient[t]
            toward_candidate = carried * slope_candidate[t]
            pulled, projected = of_pulled[t], of_projected[t]
            torch.mul(toward_candidate, slope_reset[t], out=projected[:, :units])
            torch.mul(carried, slope_update[t], out=projected[:, units : 2 * units])
            projected[:, 2 * units :] = toward_candidate
            pulled[:, : 2 * units] = projected[:, : 2 * units]
            torch.mul(toward_candidate, reset[t], out=pulled[:, 2 * units :])
            carried = torch.addmm(carried * update[t], pulled, of_state)
            if t in fresh:
                carried = carried.masked_fill(starts[t].unsqueeze(1), 0.0)
        pulled, projected = of_pulled.flatten(0, 1), of_projected.flatten(0, 1)
        return (
            projected.mm(of_input).view_as(features) if ctx.needs_input_grad[0] else None,
            carried if ctx.needs_input_grad[1] else None,
            None,
            projected.t().mm(features.flatten(0, 1)),
            pulled.t().mm(before.flatten(0, 1)),
            projected.sum(0),
            pulled.sum(0),
        )


def _steps_that_start(starts: Tensor | None) -> set[int]:
    """The steps before which some state is zeroed."""
    return set() if starts is None else set(starts.any(dim=1).nonzero().flatten().tolist())
