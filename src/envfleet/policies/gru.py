"""A GRU over whole sequences in which episodes may start anywhere, with an explicit backward pass through time.

    r = sigmoid(x W_r + h U_r)    z = sigmoid(x W_z + h U_z)    n = tanh(x W_n + r * (h U_n))    h' = n + z (h - n)

Everything that does not depend on the state is one operation for all steps, forward and backward. The loop over time
keeps one product and four small operations forward, two backward: each of them costs as much as a small product.
Torch's GRU cannot reset the state within a sequence, so it needs one call per run between two episode starts, and
autograd records every small operation.
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
        two = 2 * units
        bias = torch.cat([bias_input[:two] + bias_state[:two], bias_input[two:]])
        # Becomes r, z and h U_n of each step: the product with the state is added in the loop.
        pulled = torch.addmm(bias, features.flatten(0, 1), of_input.t()).view(time, batch, 3 * units)
        candidates = pulled[:, :, two:].contiguous()  # becomes n of each step
        pulled[:, :, two:] = bias_state[two:]
        states = features.new_empty(time + 1, batch, units)
        states[0] = state
        fresh = _steps_that_start(starts)
        across = of_state.t()
        # Create the views of all steps at once: a slice costs as much as a small product.
        of_steps = zip(
            states.unbind(),
            pulled.unbind(),
            pulled[:, :, :two].unbind(),
            pulled[:, :, :units].unbind(),
            pulled[:, :, units:two].unbind(),
            pulled[:, :, two:].unbind(),
            candidates.unbind(),
            states[1:].unbind(),
            strict=False,
        )
        for t, (before, all_pulled, gates, reset, update, recalled, candidate, after) in enumerate(of_steps):
            held = before
            if t in fresh:
                assert starts is not None
                held = before.masked_fill(starts[t].unsqueeze(1), 0.0)
            all_pulled.addmm_(held, across)
            gates.sigmoid_()
            candidate.addcmul_(reset, recalled).tanh_()
            torch.lerp(candidate, held, update, out=after)
        held = states[:-1]
        if fresh:
            assert starts is not None
            held = held.masked_fill(starts.unsqueeze(2), 0.0)
        ctx.save_for_backward(features, starts, of_input, of_state, held, pulled, candidates)
        return states[1:]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        features, starts, of_input, of_state, held, pulled, candidates = ctx.saved_tensors
        time, batch, units = gradient.shape
        reset, update, recalled = pulled.view(time, batch, 3, units).unbind(2)
        # The gradient of h' times these is that of h U + b, for r, z and n.
        slope = (1.0 - candidates.square()).mul_(1.0 - update)  # d h' / d n, through tanh
        factors = gradient.new_empty(time, batch, 3, units)
        of_reset, of_update, of_candidate = factors.unbind(2)
        torch.mul(slope, reset, out=of_candidate)
        torch.mul(of_candidate, recalled, out=of_reset).mul_(1.0 - reset)
        torch.sub(held, candidates, out=of_update).mul_(update).mul_(1.0 - update)
        carried = torch.empty_like(candidates)  # becomes the gradient of h' of each step
        carried[-1] = gradient[-1]
        fresh = _steps_that_start(starts)
        beginning = gradient.new_zeros(batch, units)  # the state before the first step has no output
        backwards = zip(
            range(time - 1, -1, -1),
            carried.unbind()[::-1],
            carried.unsqueeze(2).unbind()[::-1],
            factors.unbind()[::-1],
            factors.view(time, batch, 3 * units).unbind()[::-1],
            update.unbind()[::-1],
            (*gradient.unbind()[-2::-1], beginning),
            (*carried.unbind()[-2::-1], beginning),
            strict=True,
        )
        for t, here, here_thrice, factor, of_pulled, kept, given, earlier in backwards:
            factor.mul_(here_thrice)
            if t not in fresh:
                torch.addcmul(given, here, kept, out=earlier).addmm_(of_pulled, of_state)
                continue
            through = torch.addmm(here * kept, of_pulled, of_state).masked_fill_(starts[t].unsqueeze(1), 0.0)
            torch.add(given, through, out=earlier)
        wanted = ctx.needs_input_grad  # frozen weights need no gradient; computing it would be one product each
        rows = factors.view(time * batch, 3 * units)  # gradients of h U + b
        of_state_weights = rows.t().mm(held.flatten(0, 1)) if wanted[4] else None
        of_state_bias = rows.sum(0) if wanted[6] else None
        torch.mul(carried, slope, out=of_candidate)  # now gradients of x W + b: the same, except for the candidates
        return (
            rows.mm(of_input).view_as(features) if wanted[0] else None,
            beginning if wanted[1] else None,
            None,
            rows.t().mm(features.flatten(0, 1)) if wanted[3] else None,
            of_state_weights,
            rows.sum(0) if wanted[5] else None,
            of_state_bias,
        )


def _steps_that_start(starts: Tensor | None) -> set[int]:
    """The steps before which at least one state is reset."""
    return set() if starts is None else set(starts.any(dim=1).nonzero().flatten().tolist())
