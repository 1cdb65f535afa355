"""Twin critics: the packed pass against one twin after the other, frozen weights, dropout."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from envfleet.policies.twins import Twins


def twins_of(hidden: tuple[int, ...], **options: float) -> Twins:
    torch.manual_seed(0)
    twins = Twins(5, hidden, 3, normalised=bool(options.get("normalised")), dropout=options.get("dropout", 0.0))
    return twins.double()


def one_by_one(twins: Twins, rows: Tensor) -> Tensor:
    found = []
    for twin in range(2):
        values = rows
        for depth, (weight, bias) in enumerate(zip(twins.weights, twins.biases, strict=True)):
            values = functional.linear(values, weight[twin], bias[twin, 0])
            if depth < len(twins.hidden):
                if len(twins.gains):
                    gain, shift = twins.gains[depth][twin, 0], twins.shifts[depth][twin, 0]
                    values = functional.layer_norm(values, values.shape[-1:], gain, shift)
                values = torch.relu(values)
        found.append(values)
    return torch.stack(found)


@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("hidden", [(7,), (8, 6), (4, 5, 6), ()])
def test_values_and_gradients_are_those_of_two_networks(hidden: tuple[int, ...], normalised: bool) -> None:
    twins = twins_of(hidden, normalised=normalised)
    with torch.no_grad():
        for parameter in twins.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    rows = torch.randn(11, 5, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(2, 11, 3, dtype=torch.float64)
    found, expected = twins(rows), one_by_one(twins, rows)
    torch.testing.assert_close(found, expected)
    inputs = [rows, *twins.parameters()]
    torch.testing.assert_close(
        torch.autograd.grad(found, inputs, upstream), torch.autograd.grad(expected, inputs, upstream)
    )


@pytest.mark.parametrize("normalised", [False, True])
def test_frozen_weights_get_no_gradient_and_the_rows_the_same(normalised: bool) -> None:
    twins, rows = twins_of((8, 6), normalised=normalised), torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    (expected,) = torch.autograd.grad(one_by_one(twins, rows).sum(), [rows])
    frozen = twins(rows, frozen=True)
    found = torch.autograd.grad(frozen.sum(), [rows, *twins.parameters()], allow_unused=True)
    torch.testing.assert_close(found[0], expected)
    assert all(gradient is None for gradient in found[1:])


def test_dropout_leaves_units_out_and_keeps_the_mean() -> None:
    twins = twins_of((400,), dropout=0.25)
    assert twins_of((8,)).draw_dropout(np.random.default_rng(0), (3,)) is None
    factors = twins.draw_dropout(np.random.default_rng(0), (50,))
    assert factors is not None and factors.shape == (50, 800) and factors.dtype == np.float32
    assert set(np.unique(factors).tolist()) == {0.0, float(np.float32(1 / 0.75))}
    assert np.mean(factors == 0.0) == pytest.approx(0.25, abs=0.01)
    rows = torch.randn(50, 5, dtype=torch.float64)
    kept = torch.from_numpy(factors).double()
    found = twins(rows, dropout=kept)
    for twin in range(2):
        hidden = functional.linear(rows, twins.weights[0][twin], twins.biases[0][twin, 0])
        hidden = torch.relu(hidden * kept[:, 400 * twin : 400 * (twin + 1)])
        torch.testing.assert_close(
            found[twin], functional.linear(hidden, twins.weights[1][twin], twins.biases[1][twin, 0])
        )
