"""The GRU over sequences matches torch's cell step by step, forward and backward, with the state zeroed at starts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from envfleet.policies.gru import gru_sequence

TIME, BATCH, INPUTS, UNITS = 7, 3, 5, 4


@pytest.mark.parametrize("chance_of_a_start", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(
    ("time", "batch", "units"),
    [
        (7, 3, 4),
        (7, 8, 8),
        (7, 9, 7),
        (7, 1, 1),
        (1, 1, 4),
        (1, 8, 4),
        (5, 6, 70),
    ],  # whole blocks of four, and the rest
)
def test_outputs_and_gradients_are_those_of_torch_cells(
    time: int, batch: int, units: int, chance_of_a_start: float
) -> None:
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).requires_grad_()

    weights = [drawn(3 * units, INPUTS), drawn(3 * units, units), drawn(3 * units), drawn(3 * units)]
    weights[1] = (weights[1].detach() / units**0.5).requires_grad_()  # else rounding errors grow from step to step
    features, state = drawn(time, batch, INPUTS), drawn(batch, units)
    starts = torch.rand(time, batch, generator=generator) < chance_of_a_start

    outputs, held = [], state
    for t in range(time):
        held = torch.gru_cell(features[t], held.masked_fill(starts[t].unsqueeze(1), 0.0), *weights)
        outputs.append(held)
    expected = torch.stack(outputs)
    found = gru_sequence(features, state, starts, weights)
    close = {"rtol": 1e-4, "atol": 1e-5}  # float32, and a tanh of our own
    torch.testing.assert_close(found, expected, **close)

    upstream = torch.randn(found.shape, generator=generator)
    inputs = [features, state, *weights]
    torch.testing.assert_close(
        torch.autograd.grad(found, inputs, upstream), torch.autograd.grad(expected, inputs, upstream), **close
    )


def test_without_starts_nothing_is_zeroed() -> None:
    weights = [torch.randn(3 * UNITS, INPUTS), torch.randn(3 * UNITS, UNITS), torch.zeros(12), torch.zeros(12)]
    features, state = torch.randn(TIME, BATCH, INPUTS), torch.randn(BATCH, UNITS)
    never = torch.zeros(TIME, BATCH, dtype=torch.bool)
    assert torch.equal(gru_sequence(features, state, None, weights), gru_sequence(features, state, never, weights))


def test_gradients_of_frozen_weights_are_not_computed() -> None:
    """Their products would have these shapes; the one that is left is the gradient of the features."""
    weights = [torch.randn(3 * UNITS, INPUTS), torch.randn(3 * UNITS, UNITS), torch.zeros(12), torch.zeros(12)]
    features = torch.randn(TIME, BATCH, INPUTS, requires_grad=True)
    free = [weight.clone().requires_grad_() for weight in weights]
    upstream, shapes = torch.randn(TIME, BATCH, UNITS), []

    class Watched(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            found = function(*args, **(kwargs or {}))
            if function is torch.ops.aten.mm.default:
                shapes.append(tuple(found.shape))
            return found

    found = {}
    for name, given in (("frozen", weights), ("free", free)):
        outputs = gru_sequence(features, torch.zeros(BATCH, UNITS), None, given)
        shapes.clear()
        with Watched():
            (found[name],) = torch.autograd.grad(outputs, [features], upstream)
        assert (TIME * BATCH, INPUTS) in shapes
        assert ((3 * UNITS, INPUTS) in shapes) == (name == "free")
        assert ((3 * UNITS, UNITS) in shapes) == (name == "free")
    assert torch.equal(found["frozen"], found["free"])


def test_the_tanh_of_the_kernels_is_that_of_numpy() -> None:
    from envfleet.policies.gru_kernels import _tanh

    given = np.concatenate([np.linspace(-12.0, 12.0, 997), [1e30, -1e30, np.inf, -np.inf, 1e-30]]).astype(np.float32)
    found = np.array([_tanh(value) for value in given])
    np.testing.assert_allclose(found, np.tanh(given.astype(np.float64)), rtol=4e-7)


def test_what_is_not_a_number_is_not_hidden() -> None:
    """Otherwise a training that diverges would not be noticed."""
    weights = [torch.randn(3 * UNITS, INPUTS), torch.randn(3 * UNITS, UNITS), torch.zeros(12), torch.zeros(12)]
    features = torch.randn(TIME, 8, INPUTS)
    features[2, 5, 0] = torch.nan
    outputs = gru_sequence(features, torch.zeros(8, UNITS), None, weights)
    assert outputs[2:, 5].isnan().all()
    assert outputs.isnan().sum() == outputs[2:, 5].numel()
