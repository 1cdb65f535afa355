"""Forward and backward pass of a Q-network, like `envfleet.policies.manual_gradients` for PPO.

An update needs the values of the observations, with a gradient. Double Q-learning also needs those of the next
observations, from the same weights. An MLP computes both as one batch, with an explicit backward pass; all other
networks use autograd.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from envfleet.policies.backward import backward
from envfleet.policies.encoders import plain_layers
from envfleet.policies.manual_gradients import Tower, gradient_of
from envfleet.policies.policy import Observations
from envfleet.policies.q_policy import QPolicy

__all__ = ["QGradientPass", "make_q_gradient_pass"]

Noise = tuple[Tensor | None, Tensor | None]  # head noise, for the observations and for the next observations


class QGradientPass(Protocol):
    """Forward and backward pass of a Q-network; use it under `torch.no_grad`."""

    def forward(self, seen: Observations, rows: int, noise: Noise, *, both: bool) -> tuple[Tensor, Tensor | None]:
        """Return values [rows, action] of the first `rows` rows and, if `both`, those of the rest."""

    def values(self, seen: Observations, noise: Tensor | None) -> Tensor:
        """Return values [row, action] that need no backward pass."""

    def backward(self, gradient: Tensor) -> None:
        """Propagate the gradient of the first rows' values to the `.grad` of the weights."""


def make_q_gradient_pass(policy: QPolicy) -> QGradientPass:
    """Return the fastest pass for the network; call it once the weights have their final storage and `.grad`."""
    heads = policy.network.plain_heads()
    layers = None if heads is None else plain_layers(heads.trunk)
    if heads is None or layers is None:
        return _AutogradQPass(policy)
    return _PlainQPass(policy, layers.linear, layers.activation, heads.advantages, heads.state)


class _AutogradQPass:
    """Any network, by autograd."""

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
        backward([self._values], [gradient])
        self._values = None


class _PlainQPass:
    """An MLP with one linear head, or two dueling heads.

    Dueling heads are equivalent to one linear layer: its weights are those of the advantages minus their mean, plus
    those of the state value. The layer is assembled before each pass, and its gradient is split afterwards.
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
    """The advantage head and the state-value head as one layer."""

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
    """Values and gradients of parameters."""
    return [(parameter.detach(), gradient_of(parameter)) for parameter in parameters]
