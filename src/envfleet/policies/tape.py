"""Tapes: a pass through a policy's networks, and the way back with gradients of its outputs.

A learner whose loss has a simple derivative gives the gradients of action parameters and values itself; the
tape carries them on to the weights. For most networks that is torch's autograd. For the plain case, two MLPs on
one vector, the way back is written out: a minibatch of 64 rows costs half as much without autograd's bookkeeping.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor, nn

from envfleet.policies.body import ActorCritic, Body
from envfleet.policies.encoders import plain_layers

__all__ = ["AutogradTape", "Tape", "Tower", "TowersTape", "gradient_of", "make_tape"]


class Tape(Protocol):
    """One pass forward, then one back, which brings the gradients into the `.grad` of the weights: zeros before."""

    def forward(self, parts: list[Any], memory: Tensor | None, starts: Tensor | None) -> tuple[Tensor, Tensor]:
        """Action parameters [rows, n] and values [rows], outside of any graph."""

    def backward(self, parameters: Tensor, values: Tensor) -> None:
        """Takes the gradients of both."""


def make_tape(body: Body) -> Tape:
    """The quickest tape for the networks; make it when the weights have their place and their `.grad`."""
    towers = _towers(body)
    return AutogradTape(body) if towers is None else TowersTape(*towers)


class AutogradTape:
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
        torch.autograd.backward(self._outputs, (parameters, values))
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
                # tanh(x) = 2 sigmoid(2x) - 1: torch's own tanh takes three times as long as its sigmoid
                rows = torch.addmm(bias, rows, weight, beta=2.0, alpha=2.0).sigmoid_()
                torch.add(self._minus_one, rows, alpha=2.0, out=rows)
            else:
                rows = torch.addmm(bias, rows, weight).relu_()
            self._seen.append(rows)
        weight, bias = self._forward[-1]
        return torch.addmm(bias, rows, weight)

    def backward(self, gradient: Tensor) -> None:
        """Takes the gradient of the outputs, or of the first of them where there were more."""
        whole = len(gradient) == len(self._seen[0])
        for depth in range(len(self._layers) - 1, -1, -1):
            weight, _, weight_gradient, bias_gradient = self._layers[depth]
            rows = self._seen[depth] if whole else self._seen[depth][: len(gradient)]
            torch.mm(gradient.t(), rows, out=weight_gradient)
            torch.sum(gradient, 0, out=bias_gradient)
            if depth:
                gradient = gradient.mm(weight)
                if self._tanh:
                    gradient = torch.ops.aten.tanh_backward(gradient, rows)
                else:
                    gradient = torch.ops.aten.threshold_backward(gradient, rows, 0.0)
        self._seen = []


def gradient_of(parameter: Tensor) -> Tensor:
    """Its `.grad`, made where there is none yet."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


class TowersTape:
    """An actor and a critic that are MLPs of their own on the same vector; to be used under `torch.no_grad`."""

    def __init__(self, actor: Tower, critic: Tower) -> None:
        self._actor, self._critic = actor, critic

    def forward(self, parts: list[Any], memory: Tensor | None, starts: Tensor | None) -> tuple[Tensor, Tensor]:
        (rows,) = parts
        return self._actor.forward(rows), self._critic.forward(rows).squeeze(1)

    def backward(self, parameters: Tensor, values: Tensor) -> None:
        self._actor.backward(parameters)
        self._critic.backward(values.unsqueeze(1))


def _towers(body: Body) -> tuple[Tower, Tower] | None:
    """The two towers of a plain actor-critic, or None where it is anything more."""
    if not isinstance(body, ActorCritic) or body.critic is None or body.memory is not None:
        return None
    towers = []
    for trunk, head in ((body.actor, body.policy_head), (body.critic, body.value_head)):
        plain = plain_layers(trunk, head)
        if plain is None:
            return None
        towers.append(Tower(*plain))
    return towers[0], towers[1]
