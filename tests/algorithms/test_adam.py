"""Adam over the flat weights: torch's private kernel and its public optimiser give the same bits."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from envfleet.algorithms import adam
from envfleet.algorithms.adam import FlatAdam
from envfleet.policies.flat import FlatParameters


@pytest.fixture
def no_memory_of_the_kernel() -> Any:
    adam.kernel_works.cache_clear()
    yield
    adam.kernel_works.cache_clear()


def flat_of() -> FlatParameters:
    torch.manual_seed(0)
    return FlatParameters(nn.Sequential(nn.Linear(5, 33), nn.Linear(33, 3)))


def steps(optimiser: FlatAdam, flat: FlatParameters, first: int, last: int) -> None:
    for step in range(first, last):
        generator = torch.Generator().manual_seed(step)
        flat.gradient.copy_(torch.randn(flat.gradient.shape, generator=generator))
        optimiser.step(0.01 / (1 + step))


def test_without_the_private_kernel_the_numbers_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    flat, other = flat_of(), flat_of()
    optimiser = FlatAdam(flat, epsilon=1e-5)
    steps(optimiser, flat, 0, 20)

    monkeypatch.setattr(adam, "kernel_works", lambda: False)
    monkeypatch.setattr(adam, "_call_kernel", None)
    public = FlatAdam(other, epsilon=1e-5)
    steps(public, other, 0, 10)
    halfway = public.state()
    assert halfway["steps"] == 10.0
    again = FlatAdam(other, epsilon=1e-5)  # as in a resumed run
    again.restore(halfway)
    steps(again, other, 10, 20)
    assert np.array_equal(flat.numpy(), other.numpy())
    for name, array in optimiser.state().items():
        assert np.array_equal(array, again.state()[name]), name


@pytest.mark.parametrize("kernel", [True, False])
def test_weights_apart_have_a_learning_rate_of_their_own(monkeypatch: pytest.MonkeyPatch, kernel: bool) -> None:
    """The same as two optimisers of torch, over the first and the second layer."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(5, 33), nn.Linear(33, 3), nn.Linear(3, 2))
    plain = copy.deepcopy(module)
    if not kernel:
        monkeypatch.setattr(adam, "kernel_works", lambda: False)
        monkeypatch.setattr(adam, "_call_kernel", None)
    flat = FlatParameters(module)
    ours = FlatAdam(flat, epsilon=1e-8, apart=flat.span_of(module[1]))
    theirs = torch.optim.Adam(
        [
            {"params": [*plain[0].parameters(), *plain[2].parameters()], "lr": 0.1},
            {"params": plain[1].parameters(), "lr": 0.001},
        ]
    )
    for step in range(5):
        rows = torch.randn(4, 5, generator=torch.Generator().manual_seed(step))
        flat.zero_gradient()
        theirs.zero_grad()
        for each in (module, plain):
            each(rows).square().sum().backward()
        ours.step(0.1, 0.001)
        theirs.step()
    for one, other in zip(module.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_this_torch_has_the_kernel(no_memory_of_the_kernel: None) -> None:
    assert adam.kernel_works()


def with_another_signature(weights: Any, gradients: Any) -> None:
    raise AssertionError("it is not called with two lists")


def with_another_meaning(weights: Any, *others: Any, **numbers: Any) -> None:
    weights[0].add_(1.0)


@pytest.mark.parametrize("kernel", [None, with_another_signature, with_another_meaning])
def test_a_kernel_that_is_gone_or_different_is_not_used(
    monkeypatch: pytest.MonkeyPatch, no_memory_of_the_kernel: None, kernel: Any
) -> None:
    if kernel is None:
        monkeypatch.delattr(torch, "_fused_adam_")
    else:
        monkeypatch.setattr(torch, "_fused_adam_", kernel)
    assert not adam.kernel_works()
    assert FlatAdam(flat_of(), epsilon=1e-5)._public is not None
