"""Manual gradients: forward and backward pass through a policy's networks.

A learner whose loss has a simple derivative computes the gradients of action parameters and values itself; the pass
propagates them to the weights. Most networks use torch's autograd. For two MLPs on one vector, the backward pass is
explicit: a minibatch of 64 rows costs half as much without autograd's bookkeeping.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor, nn

from envfleet.policies.backward import backward
from envfleet.policies.body import ActorCritic, Body
from envfleet.policies.encoders import plain_layers
from envfleet.policies.products import product

__all__ = ["AutogradPass", "GradientPass", "Tower", "TowersPass", "gradient_of", "make_gradient_pass"]


class GradientPass(Protocol):
    """One forward pass, then one backward pass, which writes to the `.grad` of the weights; zero it before."""

    def forward(self, parts: list[Any], memory: Tensor | None, starts: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return action parameters [rows, n] and values [rows], detached from any graph."""

    def backward(self, parameters: Tensor, values: Tensor) -> None:
        """Propagate the gradients of action parameters and values to the weights."""


def make_gradient_pass(body: Body) -> GradientPass:
    """Return the fastest pass for the networks; call it once the weights have their final storage and `.grad`."""
    towers = _towers(body)
    return AutogradPass(body) if towers is None else TowersPass(*towers)


class AutogradPass:
    """Any network, by autograd."""

    def __init__(self, body: Body) -> None:
        self._body = body
        self._outputs: tuple[Tensor, Tensor] | None = None

    def forward(self, parts: list[Any], memory: Tensor | None, starts: Tensor | None) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            parameters, values = self._body.run(parts, memory, starts)
        self._outputs = (parameters, values)
        return parameters.detach(), values.detach()

    def backward(self, parameters: Tensor, values: Tensor) -> None:
        assert self._outputs is not None, "forward comes first"
        backward(self._outputs, (parameters, values))
        self._outputs = None


class Tower:
    """Linear layers with an activation between them."""

    def __init__(self, layers: list[nn.Linear], activation: str) -> None:
        self._layers = [
            (layer.weight.detach(), layer.bias.detach(), gradient_of(layer.weight), gradient_of(layer.bias))
            for layer in layers
        ]
        self._forward = [(weight.t(), bias) for weight, bias, _, _ in self._layers]
        self._tanh = activation == "tanh"
        self._minus_one = layers[0].weight.new_tensor(-1.0)
        self._seen: list[Tensor] = []

    def forward(self, rows: Tensor) -> Tensor:
        self._seen = [rows]
        for weight, bias in self._forward[:-1]:
            if self._tanh:
                # tanh(x) = 2 sigmoid(2x) - 1: torch's tanh takes three times as long as its sigmoid
                rows = product(rows, weight, bias, factor=2.0).sigmoid_()
                torch.add(self._minus_one, rows, alpha=2.0, out=rows)
            else:
                rows = product(rows, weight, bias).relu_()
            self._seen.append(rows)
        weight, bias = self._forward[-1]
        return product(rows, weight, bias)

    def backward(self, gradient: Tensor) -> None:
        """Propagate the gradient of the outputs, or of the first rows only, to the weights."""
        whole = len(gradient) == len(self._seen[0])
        for depth in range(len(self._layers) - 1, -1, -1):
            weight, _, weight_gradient, bias_gradient = self._layers[depth]
            rows = self._seen[depth] if whole else self._seen[depth][: len(gradient)]
            product(gradient.t(), rows, out=weight_gradient)
            torch.sum(gradient, 0, out=bias_gradient)
            if depth:
                gradient = product(gradient, weight)
                if self._tanh:
                    gradient = torch.ops.aten.tanh_backward(gradient, rows)
                else:
                    gradient = torch.ops.aten.threshold_backward(gradient, rows, 0.0)
        self._seen = []


def gradient_of(parameter: Tensor) -> Tensor:
    """Return the `.grad` of a parameter; create it if it is missing."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


class TowersPass:
    """An actor and a critic that are separate MLPs on the same vector; use it under `torch.no_grad`."""

    def __init__(self, actor: Tower, critic: Tower) -> None:
        self._actor, self._critic = actor, critic

    def forward(self, parts: list[Any], memory: Tensor | None, starts: Tensor | None) -> tuple[Tensor, Tensor]:
        (rows,) = parts
        return self._actor.forward(rows), self._critic.forward(rows).squeeze(1)

    def backward(self, parameters: Tensor, values: Tensor) -> None:
        self._actor.backward(parameters)
        self._critic.backward(values.unsqueeze(1))


def _towers(body: Body) -> tuple[Tower, Tower] | None:
    """Return the two towers of an actor-critic of plain MLPs; None for any other network."""
    if not isinstance(body, ActorCritic) or body.critic is None or body.memory is not None:
        return None
    towers = []
    for trunk, head in ((body.actor, body.policy_head), (body.critic, body.value_head)):
        plain = plain_layers(trunk, head)
        if plain is None:
            return None
        towers.append(Tower(*plain))
    return towers[0], towers[1]
