"""The backward pass from given gradients."""

from __future__ import annotations

import subprocess
import sys

import torch

from envfleet.policies.backward import backward


def test_it_gives_the_gradient_of_autograd() -> None:
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(3, 4, generator=generator, requires_grad=True)
    given = [torch.randn(5, 4, generator=generator), torch.randn(5, generator=generator)]

    def outputs() -> list[torch.Tensor]:
        rows = torch.linspace(-1.0, 1.0, 15).reshape(5, 3) @ weight
        return [rows.tanh(), rows.square().sum(1)]

    torch.autograd.backward(outputs(), given)
    assert weight.grad is not None
    expected = weight.grad.clone()
    weight.grad.zero_()
    with torch.no_grad():  # as learners call it
        with torch.enable_grad():
            found = outputs()
        backward(found, given)
    assert torch.equal(weight.grad, expected)


def test_it_does_not_import_symbolic_mathematics() -> None:
    """torch's own way imports sympy in the middle of the first update."""
    program = """
import sys, torch
from envfleet.policies.backward import backward
weight = torch.ones(2, requires_grad=True)
backward([2.0 * weight], [torch.ones(2)])
print(weight.grad.tolist(), "sympy" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[2.0, 2.0] False\n"
