"""Adapts a policy for collectors: it acts for a group and records the values that the learner needs."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from envfleet.policies.flat import FlatParameters
from envfleet.policies.protocol import ActingPolicy, NumpyPolicy
from envfleet.rollout.acting import BoundPolicy, Decision
from envfleet.rollout.arrays import Column

__all__ = ["PolicyActor"]

Array = np.ndarray[Any, Any]


class PolicyActor:
    """Implements `envfleet.rollout.acting.Actor`."""

    def __init__(self, policy: ActingPolicy) -> None:
        self._policy = policy
        self._flat = FlatParameters(policy.acting_module)
        self.memory_size, self.mask_size = policy.memory_size, policy.mask_size
        self.weights_size = len(self._flat.numpy())
        recorded = {"actions": (policy.action_shape, policy.action_dtype.str), **policy.recorded}
        self.columns = {name: Column(*shape_and_dtype) for name, shape_and_dtype in recorded.items()}
        self._in_numpy: list[NumpyPolicy] = []

    def load(self, weights: Array) -> None:
        mine = self._flat.numpy()
        if np.array_equal(mine, weights):  # already loaded for another group
            return
        mine[...] = weights
        for in_numpy in self._in_numpy:
            in_numpy.refresh()

    def draw_noise(self, generator: np.random.Generator, shape: tuple[int, int]) -> Array:
        return self._policy.draw_noise(generator, shape)

    def bind(self, observations: dict[str, Array], memory: Array, mask: Array) -> BoundPolicy:
        in_numpy = self._policy.numpy_version(len(memory))
        if in_numpy is not None:
            self._in_numpy.append(in_numpy)
            return _BoundNumpyPolicy(in_numpy, observations, memory, mask)
        return _BoundTorchPolicy(self._policy, observations, memory, mask)


class _BoundNumpyPolicy:
    """A NumPy policy bound to one group's buffers."""

    def __init__(self, policy: NumpyPolicy, observations: dict[str, Array], memory: Array, mask: Array) -> None:
        self._act, self._observations, self._memory, self._mask = policy.act, observations, memory, mask

    def act(self, noise: Array, *, masked: bool) -> Decision:
        acted = self._act(self._observations, self._memory, noise, self._mask if masked else None)
        return Decision(acted.env_actions, (acted.actions, *acted.recorded))


class _BoundTorchPolicy:
    """A torch policy bound to one group's buffers, which it uses as tensors that share their memory."""

    def __init__(self, policy: ActingPolicy, observations: dict[str, Array], memory: Array, mask: Array) -> None:
        self._act, self._to_env, self._remembers = policy.act, policy.to_env, policy.memory_size > 0
        self._observations = {name: torch.from_numpy(array) for name, array in observations.items()}
        self._memory, self._mask = torch.from_numpy(memory), torch.from_numpy(mask)

    def act(self, noise: Array, *, masked: bool) -> Decision:
        with torch.inference_mode():  # only around the policy: an environment may use torch in its own way
            mask = self._mask if masked else None
            acted = self._act(self._observations, self._memory, torch.from_numpy(noise), mask)
            if self._remembers:
                self._memory.copy_(acted.memory)
            env_actions = self._to_env(acted.actions).numpy()
        # Detached, because even in inference mode a view of a parameter (a constant value, say) requires gradients.
        return Decision(env_actions, (acted.actions.numpy(), *[each.detach().numpy() for each in acted.recorded]))
