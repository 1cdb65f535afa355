"""A GRU over whole sequences in which episodes may start anywhere, with an explicit backward pass through time.

    r = sigmoid(x W_r + h U_r)    z = sigmoid(x W_z + h U_z)    n = tanh(x W_n + r * (h U_n))    h' = n + z (h - n)

What does not depend on the state is one product for all steps, forward and backward. The loops over time are compiled
(`gru_kernels.py`). Torch's GRU on a CPU makes a dozen operations per step, and it cannot reset the state within a
sequence, so it needs one call per run between two episode starts.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from envfleet.policies.products import product

__all__ = ["gru_sequence"]


def gru_sequence(features: Tensor, state: Tensor, starts: Tensor | None, weights: list[Tensor]) -> Tensor:
    """Return outputs [time, batch, units] of a sequence [time, batch, n]; `starts` [time, batch] resets the state.

    `weights` are those of torch's GRU: input weights [3 units, n], state weights [3 units, units], and their biases.
    Everything is float32 on the CPU.
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
        from envfleet.policies import gru_kernels

        time, batch, _ = features.shape
        units = state.shape[1]
        two = 2 * units
        bias = torch.cat([bias_input[:two] + bias_state[:two], bias_input[two:]])
        pulled = product(features.flatten(0, 1), of_input.t(), bias).view(time, batch, 3 * units)
        candidates = pulled[:, :, two:].clone(memory_format=torch.contiguous_format)
        pulled[:, :, two:] = bias_state[two:]
        held, states = torch.empty_like(candidates), torch.empty_like(candidates)
        held[0] = state
        begun = features.new_zeros(time, batch, dtype=torch.bool) if starts is None else starts
        found = _as_arrays(pulled, candidates, held, states)
        gru_kernels.forward(*found, *_as_arrays(begun, of_state.t()))
        ctx.save_for_backward(features, of_input, of_state, held, pulled, candidates, begun)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        from envfleet.policies import gru_kernels

        features, of_input, of_state, held, pulled, candidates, begun = ctx.saved_tensors
        time, batch, units = gradient.shape
        of_pulled, of_candidates = torch.empty_like(pulled), torch.empty_like(candidates)
        carried = gradient.new_empty(batch, units)
        given = _as_arrays(gradient, pulled, candidates, held, begun, of_state)
        gru_kernels.backward(*given, *_as_arrays(of_pulled, of_candidates, carried))
        wanted = ctx.needs_input_grad  # frozen weights need no gradient; computing it would be one product each
        rows = of_pulled.view(time * batch, 3 * units)  # gradients of h U + b
        of_state_weights = product(rows.t(), held.flatten(0, 1)) if wanted[4] else None
        of_state_bias = rows.sum(0) if wanted[6] else None
        of_pulled[:, :, 2 * units :] = of_candidates  # now gradients of x W + b: the same, except for the candidates
        return (
            product(rows, of_input).view_as(features) if wanted[0] else None,
            carried if wanted[1] else None,
            None,
            product(rows.t(), features.flatten(0, 1)) if wanted[3] else None,
            of_state_weights,
            rows.sum(0) if wanted[5] else None,
            of_state_bias,
        )


def _as_arrays(*tensors: Tensor) -> Any:
    """Return the memory of tensors as arrays; a copy of one that is not contiguous."""
    return [tensor.detach().contiguous().numpy() for tensor in tensors]
