"""Layers with explicit gradients, against autograd."""

from __future__ import annotations

from itertools import pairwise
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from envfleet.policies.relu_layers import ReluLayers, relu_layers

ROWS = 9


def layers_of(*sizes: int) -> list[Tensor]:
    """Weights and biases of one network, as in `nn.Linear`."""
    torch.manual_seed(0)
    shapes = [shape for n, m in pairwise(sizes) for shape in ((m, n), (m,))]
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def expected_of(rows: Tensor, tensors: list[Tensor]) -> Tensor:
    for weight, bias in zip(tensors[:-2:2], tensors[1:-2:2], strict=True):
        rows = torch.relu(functional.linear(rows, weight, bias))
    return functional.linear(rows, *tensors[-2:])


@pytest.mark.parametrize("graded", [None, 4, 1])
@pytest.mark.parametrize("sizes", [(5, 3), (5, 8, 3), (5, 4, 6, 3)])  # the input is wider than the next layer, or not
def test_values_and_gradients_are_those_of_autograd(sizes: tuple[int, ...], graded: int | None) -> None:
    tensors = layers_of(*sizes)
    inputs = [torch.randn(ROWS, width, dtype=torch.float64, requires_grad=True) for width in (3, 2)]
    upstream = torch.randn(ROWS, 3, dtype=torch.float64)
    found, expected = relu_layers(inputs, tensors, graded)[0], expected_of(torch.cat(inputs, 1), tensors)
    torch.testing.assert_close(found, expected)
    of_found = torch.autograd.grad(found, [*inputs, *tensors], upstream)
    of_expected = torch.autograd.grad(expected[:graded], [*inputs, *tensors], upstream[:graded])
    torch.testing.assert_close(of_found, of_expected)


def test_networks_on_the_same_rows_do_not_mix() -> None:
    first, second = layers_of(5, 4, 3), [2.0 * tensor for tensor in layers_of(5, 4, 3)]
    rows = torch.randn(ROWS, 5, dtype=torch.float64, requires_grad=True)
    found = relu_layers([rows], [torch.stack(pair) for pair in zip(first, second, strict=True)])
    expected = torch.stack([expected_of(rows, first), expected_of(rows, second)])
    torch.testing.assert_close(found, expected)
    upstream = torch.randn(2, ROWS, 3, dtype=torch.float64)
    torch.testing.assert_close(
        torch.autograd.grad(found, [rows, *first], upstream), torch.autograd.grad(expected, [rows, *first], upstream)
    )


@pytest.mark.parametrize(("frozen", "products"), [(True, 2), (False, 5)])
def test_only_the_gradients_that_are_needed_are_computed(frozen: bool, products: int) -> None:
    """The hidden layer needs one product, each input one, each weight one."""
    tensors = [tensor.detach() if frozen else tensor for tensor in layers_of(5, 4, 3)]
    inputs = [torch.randn(ROWS, width, dtype=torch.float64) for width in (3, 2)]
    for each in inputs[1:] if frozen else inputs:
        each.requires_grad_()
    found = relu_layers(inputs, tensors)
    with mock.patch.object(torch, "bmm", wraps=torch.bmm) as counted:
        torch.autograd.grad(found.sum(), [each for each in (*inputs, *tensors) if each.requires_grad])
    assert counted.call_count == products


@pytest.mark.parametrize("graded", [ROWS, 4])
@pytest.mark.parametrize("sizes", [(5, 3), (5, 8, 3), (5, 4, 6, 3)])
def test_without_autograd_values_and_gradients_are_bit_identical(sizes: tuple[int, ...], graded: int) -> None:
    tensors = [torch.stack([one, 2.0 * one]).detach().requires_grad_() for one in layers_of(*sizes)]
    for tensor in tensors:
        tensor.grad = torch.full_like(tensor, torch.nan)
    layers = ReluLayers(tensors)
    for rows_of_pass in (ROWS, ROWS, ROWS + 2):  # memory is used again, or replaced
        rows = torch.randn(rows_of_pass, 5, dtype=torch.float64, requires_grad=True)
        upstream = torch.randn(2, graded, 3, dtype=torch.float64)
        expected = relu_layers([rows], tensors, graded)
        of_rows, *of_tensors = torch.autograd.grad(expected[:, :graded], [rows, *tensors], upstream)
        with torch.no_grad():
            assert torch.equal(layers.forward(rows), expected)
            layers.set_gradients(upstream)
            assert torch.equal(layers.gradient_of_inputs(upstream, slice(2, None)), of_rows[:, 2:])
        for tensor, gradient in zip(tensors, of_tensors, strict=True):
            assert tensor.grad is not None
            assert torch.equal(tensor.grad, gradient)
