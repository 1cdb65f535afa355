"""The way through a Q-network and back with gradients of its values, as `envfleet.policies.tape` has it for PPO.

An update needs values twice of the same weights: of the observations, for the gradient, and with double Q-learning of
those that follow. An MLP sees both as one batch, and its way back is written out; all other networks use autograd.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from envfleet.policies.encoders import plain_layers
from envfleet.policies.policy import Observations
from envfleet.policies.q_policy import QPolicy
from envfleet.policies.tape import Tower, gradient_of

__all__ = ["QTape", "make_q_tape"]

Noise = tuple[Tensor | None, Tensor | None]  # of the heads, for the observations and for those that follow


class QTape(Protocol):
    """To be used under `torch.no_grad`."""

    def forward(self, seen: Observations, rows: int, noise: Noise, *, both: bool) -> tuple[Tensor, Tensor | None]:
        """Values [rows, action] of the first rows, and those of the rest if wanted."""

    def values(self, seen: Observations, noise: Tensor | None) -> Tensor:
        """Values [row, action] that no way back is needed from."""

    def backward(self, gradient: Tensor) -> None:
        """Brings the gradient of the first rows' values into the `.grad` of the weights."""


def make_q_tape(policy: QPolicy) -> QTape:
    """The quickest tape for the network; make it when the weights have their place and their `.grad`."""
    heads = policy.plain_heads()
    layers = None if heads is None else plain_layers(heads.trunk)
    if heads is None or layers is None:
        return _AutogradTape(policy)
    return _PlainTape(policy, layers.linear, layers.activation, heads.advantages, heads.state)


class _AutogradTape:
    """Any network."""

    def __init__(self, policy: QPolicy) -> None:
        self._policy = policy
        self._values: Tensor | None = None

    def forward(self, seen: Observations, rows: int, noise: Noise, *, both: bool) -> tuple[Tensor, Tensor | None]:
        with torch.enable_grad():
            self._values = self._policy.q_values({name: part[:rows] for name, part in seen.items()}, noise[0])
        if not both:
            return self._values.detach(), None
        following = self._policy.q_values({name: part[rows:] for name, part in seen.items()}, noise[1])
        return self._values.detach(), following

    def values(self, seen: Observations, noise: Tensor | None) -> Tensor:
        return self._policy.q_values(seen, noise)

    def backward(self, gradient: Tensor) -> None:
        assert self._values is not None, "forward comes first"
        for parameter in self._policy.parameters():
            if parameter.grad is not None:
                parameter.grad.zero_()
        torch.autograd.backward(self._values, gradient)
        self._values = None


class _PlainTape:
    """An MLP with one linear head, or two that duel.

    Dueling heads are one linear layer in disguise: its weights are those of the advantages less their mean, plus those
    of the state's value. That layer is put together before each pass, and its gradient is taken apart after.
    """

    def __init__(
        self, policy: QPolicy, hidden: list[nn.Linear], activation: str, advantages: nn.Linear, state: nn.Linear | None
    ) -> None:
        self._read = policy.inputs.forward
        self._duel = None if state is None else _Duel(advantages, state)
        self._tower = Tower([*hidden, advantages if self._duel is None else self._duel.layer], activation)

    def forward(self, seen: Observations, rows: int, noise: Noise, *, both: bool) -> tuple[Tensor, Tensor | None]:
        if not both:
            return self.values({name: part[:rows] for name, part in seen.items()}, None), None
        values = self.values(seen, None)
        return values[:rows], values[rows:]

    def values(self, seen: Observations, noise: Tensor | None) -> Tensor:
        (vectors,) = self._read(seen)
        if self._duel is not None:
            self._duel.put_together()
        return self._tower.forward(vectors)

    def backward(self, gradient: Tensor) -> None:
        self._tower.backward(gradient)
        if self._duel is not None:
            self._duel.take_apart()


class _Duel:
    """Heads of advantages and of the state's value as one layer."""

    def __init__(self, advantages: nn.Linear, state: nn.Linear) -> None:
        self.layer = nn.Linear(advantages.in_features, advantages.out_features, device=advantages.weight.device)
        self.layer.requires_grad_(requires_grad=False)
        actions = advantages.out_features
        self._without_mean = torch.eye(actions, device=advantages.weight.device) - 1.0 / actions
        self._weights = _ours_and_theirs(self.layer.weight, advantages.weight, state.weight)
        self._biases = _ours_and_theirs(self.layer.bias, advantages.bias, state.bias)

    def put_together(self) -> None:
        (weight, _), (of_actions, _), (of_state, _) = self._weights
        torch.addmm(of_state, self._without_mean, of_actions, out=weight)
        (bias, _), (of_actions, _), (of_state, _) = self._biases
        torch.addmv(of_state, self._without_mean, of_actions, out=bias)

    def take_apart(self) -> None:
        (_, weight), (_, of_actions), (_, of_state) = self._weights
        torch.mm(self._without_mean, weight, out=of_actions)
        torch.sum(weight, 0, keepdim=True, out=of_state)
        (_, bias), (_, of_actions), (_, of_state) = self._biases
        torch.mv(self._without_mean, bias, out=of_actions)
        torch.sum(bias, 0, keepdim=True, out=of_state)


def _ours_and_theirs(*parameters: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Values and gradients."""
    return [(parameter.detach(), gradient_of(parameter)) for parameter in parameters]
