"""A GRU over whole sequences in which episodes may start anywhere, with an explicit backward pass through time.

    r = sigmoid(x W_r + h U_r)    z = sigmoid(x W_z + h U_z)    n = tanh(x W_n + r * (h U_n))    h' = n + z (h - n)

Everything that does not depend on the state is one product for all steps, forward and backward. The loop over time
keeps one product and a few small operations. Torch's GRU cannot reset the state within a sequence, so it needs one call
per run between two episode starts, and autograd records every small operation.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

__all__ = ["gru_sequence"]


def gru_sequence(features: Tensor, state: Tensor, starts: Tensor | None, weights: list[Tensor]) -> Tensor:
    """Return outputs [time, batch, units] of a sequence [time, batch, n]; `starts` [time, batch] resets the state.

    `weights` are those of torch's GRU: input weights [3 units, n], state weights [3 units, units], and their biases.
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
        gates = projected[:, :, : 2 * units].contiguous()  # r and z of each step
        candidates = projected[:, :, 2 * units :].contiguous()  # n of each step
        pulled = features.new_empty(time, batch, 3 * units)  # h U + b of each step
        states = features.new_empty(time + 1, batch, units)
        states[0] = state
        fresh = _steps_that_start(starts)
        across = of_state.t()
        # Create the views of all steps at once: a slice costs as much as a small product.
        of_steps = zip(
            states.unbind(),
            pulled.unbind(),
            pulled[:, :, : 2 * units].unbind(),
            pulled[:, :, 2 * units :].unbind(),
            gates.unbind(),
            gates[:, :, :units].unbind(),
            gates[:, :, units:].unbind(),
            candidates.unbind(),
            states[1:].unbind(),
            strict=False,
        )
        for t, (held, all_pulled, to_gates, to_candidate, gate, reset, update, candidate, after) in enumerate(of_steps):
            before = held
            if t in fresh:
                assert starts is not None
                before = held.masked_fill(starts[t].unsqueeze(1), 0.0)
            torch.addmm(bias_state, before, across, out=all_pulled)
            gate.add_(to_gates).sigmoid_()
            candidate.addcmul_(reset, to_candidate).tanh_()
            torch.lerp(candidate, before, update, out=after)
        before = states[:-1]
        if fresh:
            assert starts is not None
            before = before.masked_fill(starts.unsqueeze(2), 0.0)
        recalled = pulled[:, :, 2 * units :]
        ctx.save_for_backward(features, starts, of_input, of_state, before, gates, candidates, recalled)
        return states[1:]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        features, starts, of_input, of_state, before, gates, candidates, recalled = ctx.saved_tensors
        time, batch, units = gradient.shape
        of_pulled = gradient.new_empty(time, batch, 3 * units)  # gradients of h U + b, step by step
        toward_candidates = gradient.new_empty(time, batch, units)
        reset, update = gates[:, :, :units], gates[:, :, units:]
        # The derivatives of the activations, for all steps at once.
        slope_candidate = (1.0 - candidates.square()).mul_(1.0 - update)  # d h' / d n, through tanh
        slope_update = (before - candidates).mul_(update).mul_(1.0 - update)  # d h' / d z, through sigmoid
        slope_reset = recalled.mul(reset).mul_(1.0 - reset)
        fresh = _steps_that_start(starts)
        of_steps = zip(
            *(
                reversed(each.unbind())
                for each in (
                    gradient,
                    slope_candidate,
                    slope_reset,
                    slope_update,
                    reset,
                    update,
                    toward_candidates,
                    of_pulled,
                    of_pulled[:, :, :units],
                    of_pulled[:, :, units : 2 * units],
                    of_pulled[:, :, 2 * units :],
                )
            ),
            strict=True,
        )
        carried = gradient.new_zeros(batch, units)
        for back, (
            given,
            candidate,
            through_reset,
            through_update,
            r,
            z,
            toward,
            pulled,
            to_r,
            to_z,
            to_n,
        ) in enumerate(of_steps):
            carried = carried + given
            torch.mul(carried, candidate, out=toward)
            torch.mul(toward, through_reset, out=to_r)
            torch.mul(carried, through_update, out=to_z)
            torch.mul(toward, r, out=to_n)
            carried = torch.addmm(carried.mul_(z), pulled, of_state)
            t = time - 1 - back
            if t in fresh:
                carried = carried.masked_fill(starts[t].unsqueeze(1), 0.0)
        of_projected = of_pulled.clone()  # gradients of x W + b: the same, except for the candidates
        of_projected[:, :, 2 * units :] = toward_candidates
        pulled, projected = of_pulled.flatten(0, 1), of_projected.flatten(0, 1)
        wanted = ctx.needs_input_grad  # frozen weights need no gradient; computing it would be one product each
        return (
            projected.mm(of_input).view_as(features) if wanted[0] else None,
            carried if wanted[1] else None,
            None,
            projected.t().mm(features.flatten(0, 1)) if wanted[3] else None,
            pulled.t().mm(before.flatten(0, 1)) if wanted[4] else None,
            projected.sum(0) if wanted[5] else None,
            pulled.sum(0) if wanted[6] else None,
        )


def _steps_that_start(starts: Tensor | None) -> set[int]:
    """The steps before which at least one state is reset."""
    return set() if starts is None else set(starts.any(dim=1).nonzero().flatten().tolist())
