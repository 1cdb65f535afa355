"""Adapts a policy for collectors: it acts for a group and records the values that the learner needs."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from envfleet.policies.flat import FlatParameters
from envfleet.policies.policy import Policy
from envfleet.policies.q_policy import QPolicy
from envfleet.policies.small import SmallPolicy, small_policy
from envfleet.rollout.acting import BoundPolicy, Decision
from envfleet.rollout.arrays import Column

__all__ = ["PolicyActor"]

Array = np.ndarray[Any, Any]


class PolicyActor:
    """Implements `envfleet.rollout.acting.Actor`."""

    def __init__(self, policy: Policy | QPolicy, *, with_values: bool, with_log_probs: bool) -> None:
        self._policy, self.with_values = policy, with_values
        self._flat = FlatParameters(policy)
        self.memory_size, self.mask_size = policy.memory_size, policy.mask_size
        self.weights_size = len(self._flat.numpy())
        self.columns = {"actions": Column(policy.action_shape, np.dtype(policy.action_dtype).str)}
        if with_log_probs:
            self.columns["log_probs"] = Column((), "<f4")
        if with_values:
            self.columns["values"] = Column((), "<f4")

    def load(self, weights: Array) -> None:
        self._flat.numpy()[...] = weights

    def draw_noise(self, generator: np.random.Generator, shape: tuple[int, int]) -> Array:
        return self._policy.draw_noise(generator, shape)

    def bind(self, observations: dict[str, Array], memory: Array, mask: Array) -> BoundPolicy:
        small = small_policy(self._policy, len(memory), with_values=self.with_values)
        if small is not None:
            (rows,) = observations.values()
            return _BoundSmallPolicy(small, rows, memory, mask)
        return _BoundTorchPolicy(self._policy, observations, memory, mask, list(self.columns))


class _BoundSmallPolicy:
    """A NumPy policy bound to one group's buffers."""

    def __init__(self, policy: SmallPolicy, observations: Array, memory: Array, mask: Array) -> None:
        self._policy, self._observations, self._memory, self._mask = policy, observations, memory, mask

    def act(self, noise: Array, *, masked: bool) -> Decision:
        acted = self._policy.act(self._observations, self._memory, noise, self._mask if masked else None)
        if acted.log_probs is None:
            return Decision(acted.env_actions, (acted.actions,))
        if acted.values is None:
            return Decision(acted.env_actions, (acted.actions, acted.log_probs))
        return Decision(acted.env_actions, (acted.actions, acted.log_probs, acted.values))


class _BoundTorchPolicy:
    """A torch policy bound to one group's buffers, which it uses as tensors that share their memory."""

    def __init__(
        self,
        policy: Policy | QPolicy,
        observations: dict[str, Array],
        memory: Array,
        mask: Array,
        recorded: list[str],
    ) -> None:
        self._policy, self._with_values, self._count = policy, "values" in recorded, len(recorded)
        self._observations = {name: torch.from_numpy(array) for name, array in observations.items()}
        self._memory, self._mask = torch.from_numpy(memory), torch.from_numpy(mask)

    def act(self, noise: Array, *, masked: bool) -> Decision:
        with torch.inference_mode():  # only around the policy: an environment may use torch in its own way
            acted = self._policy.act(
                self._observations,
                self._memory,
                torch.from_numpy(noise),
                self._mask if masked else None,
                with_values=self._with_values,
            )
            if self._policy.memory_size:
                self._memory.copy_(acted.memory)
            actions = acted.actions.numpy()
            env_actions = self._policy.to_env(acted.actions).numpy()
        # Detached, because even in inference mode a view of a parameter (a constant value, say) requires gradients.
        if self._count == 1:
            return Decision(env_actions, (actions,))
        if not self._with_values:
            return Decision(env_actions, (actions, acted.log_probs.detach().numpy()))
        assert acted.values is not None
        return Decision(env_actions, (actions, acted.log_probs.detach().numpy(), acted.values.detach().numpy()))
