"""Actor and critic: from a preprocessed observation to action parameters and values."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from envfleet.policies.encoders import Trunk
from envfleet.policies.memory import Memory
from envfleet.policies.weights import POLICY_HEAD_GAIN, VALUE_HEAD_GAIN, orthogonal, parameters_of

__all__ = ["ActorCritic", "Body", "WholePolicy"]


class Body(nn.Module):
    """Interface of a policy's networks."""

    memory_size = 0
    shared: bool
    rows_at_once: int | None = None  # for one pass on a CPU, if more would be slower

    def step(self, parts: list[Any], memory: Tensor, *, with_values: bool) -> tuple[Tensor, Tensor | None, Tensor]:
        """Return action parameters [batch, n], values [batch] if requested, and the memory after one step."""
        raise NotImplementedError

    def run(self, parts: list[Any], memory: Tensor | None, starts: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return action parameters [rows, n] and values [rows]; with memory, rows are time * batch."""
        raise NotImplementedError

    def values(self, parts: list[Any], memory: Tensor | None, starts: Tensor | None) -> Tensor:
        """Return values [rows] only."""
        raise NotImplementedError


class ActorCritic(Body):
    """An actor and a critic with linear heads, on a shared trunk (with or without memory) or on separate ones."""

    def __init__(self, actor: Trunk, critic: Trunk | None, memory: Memory | None, parameter_size: int) -> None:
        super().__init__()
        self.actor, self.critic, self.memory = actor, critic, memory
        self.shared = critic is None
        self.rows_at_once = actor.rows_at_once  # a separate critic has the same encoders
        self.memory_size = 0 if memory is None else memory.state_size
        features = actor.size if memory is None else memory.units
        self.policy_head = nn.Linear(features, parameter_size)
        self.value_head = nn.Linear(features if critic is None else critic.size, 1)
        orthogonal(self.policy_head, POLICY_HEAD_GAIN)
        orthogonal(self.value_head, VALUE_HEAD_GAIN)
        # Plain attributes: looking up a submodule costs as much as a small tensor operation.
        self._run_actor = actor.forward
        self._run_critic = None if critic is None else critic.forward
        self._step_memory = None if memory is None else memory.step
        self._policy_weights = parameters_of(self.policy_head)
        self._value_weights = parameters_of(self.value_head)

    def step(self, parts: list[Any], memory: Tensor, *, with_values: bool) -> tuple[Tensor, Tensor | None, Tensor]:
        features = self._run_actor(parts)
        if self._step_memory is not None:
            features, memory = self._step_memory(features, memory)
        parameters = _linear(features, self._policy_weights)
        if not with_values:
            return parameters, None, memory
        return parameters, self._critic_values(parts, features), memory

    def run(self, parts: list[Any], memory: Tensor | None, starts: Tensor | None) -> tuple[Tensor, Tensor]:
        features = self._remember(self._run_actor(parts), memory, starts)
        return _linear(features, self._policy_weights), self._critic_values(parts, features)

    def values(self, parts: list[Any], memory: Tensor | None, starts: Tensor | None) -> Tensor:
        if self._run_critic is not None:
            return self._critic_values(parts, None)
        return self._critic_values(parts, self._remember(self._run_actor(parts), memory, starts))

    def _critic_values(self, parts: list[Any], features: Tensor | None) -> Tensor:
        if self._run_critic is not None:
            features = self._run_critic(parts)
        assert features is not None
        return _linear(features, self._value_weights).squeeze(1)

    def _remember(self, features: Tensor, memory: Tensor | None, starts: Tensor | None) -> Tensor:
        if self.memory is None:
            return features
        assert memory is not None
        sequence = features.view(-1, len(memory), features.shape[1])  # [time, batch, n]
        return self.memory.run(sequence, memory, starts).flatten(0, 1)


class WholePolicy(Body):
    """A user's own module that returns both action parameters and values."""

    shared = True

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def step(self, parts: list[Any], memory: Tensor, *, with_values: bool) -> tuple[Tensor, Tensor | None, Tensor]:
        parameters, values = self.module(parts[0])
        return parameters, values if with_values else None, memory

    def run(self, parts: list[Any], memory: Tensor | None, starts: Tensor | None) -> tuple[Tensor, Tensor]:
        parameters, values = self.module(parts[0])
        return parameters, values

    def values(self, parts: list[Any], memory: Tensor | None, starts: Tensor | None) -> Tensor:
        values: Tensor = self.module(parts[0])[1]
        return values


def _linear(features: Tensor, weights: dict[str, Tensor]) -> Tensor:
    return functional.linear(features, weights["weight"], weights["bias"])
