"""`QPolicy`: a Q-network with epsilon-greedy actions.

Epsilon is part of the weights, so it reaches the workers with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from envfleet.errors import SettingsError
from envfleet.policies.distributions import forbid, forbid_in_numpy
from envfleet.policies.encoders import plain_layers
from envfleet.policies.numpy_networks import NumpyNetwork, VectorReader, fit, vector_reader, view
from envfleet.policies.policy import Observations
from envfleet.policies.protocol import Acted, NumpyActed, Recorded
from envfleet.policies.q_networks import build_q_parts
from envfleet.policies.q_settings import QSettings
from envfleet.policies.weights import seeded

__all__ = ["QPolicy", "build_q_policy"]

Array = np.ndarray[Any, Any]


class QPolicy(nn.Module):
    """A Q-network for one observation space and a Discrete action space."""

    epsilon: Tensor

    def __init__(
        self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], settings: QSettings
    ) -> None:
        super().__init__()
        if not isinstance(action_space, spaces.Discrete):
            raise SettingsError(
                f"the action space is {action_space}, expected Discrete",
                hint="DQN chooses among a number of actions; PPO takes Box, MultiDiscrete and MultiBinary as well",
            )
        self.actions = int(action_space.n)
        self.start = int(action_space.start)
        self.inputs, self.network = build_q_parts(observation_space, action_space, settings)
        self.register_buffer("epsilon", torch.ones(()))
        self.memory_size, self.mask_size = 0, self.actions
        self.head_noise = self.network.noise_size if settings.noisy else 0
        self.noise_size = 1 + self.actions + self.head_noise
        self.action_shape, self.action_dtype = (), np.dtype(np.int64)
        self.recorded: Recorded = {}

    def q_values(self, observations: Observations, noise: Tensor | None = None) -> Tensor:
        """Return Q-values [batch, action]. Noisy heads use `noise` [batch, head_noise], or their mean without it."""
        return self.network(self.inputs(observations), noise)  # type: ignore[no-any-return]  # torch types it loosely

    @property
    def acting_module(self) -> nn.Module:
        return self

    def draw_noise(self, generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Sample noise: one number that decides whether to explore, one per action to pick one, then head noise."""
        uniform = generator.random((*shape, 1 + self.actions), np.float32)
        if not self.head_noise:
            return uniform
        normal = generator.standard_normal((*shape, self.head_noise), np.float32)
        return np.concatenate([uniform, _squashed(normal)], axis=-1)

    def act(self, observations: Observations, memory: Tensor, noise: Tensor, mask: Tensor | None = None) -> Acted:
        """Return the best action or, with probability `epsilon`, a random allowed one."""
        head_noise = noise[:, 1 + self.actions :] if self.head_noise else None
        best = self._best(self.q_values(observations, head_noise), mask)
        anywhere = self._best(noise[:, 1 : 1 + self.actions], mask)
        actions = torch.where(noise[:, 0] < self.epsilon, anywhere, best)
        return Acted(actions, memory)

    def numpy_version(self, rows: int) -> _NumpyQPolicy | None:
        """Return a NumPy version for batches of `rows`, if the network is small and has linear heads."""
        read, heads = vector_reader(self.inputs), self.network.plain_heads()
        # The state value of a dueling network is the same for all actions, so it does not affect the best action.
        layers = None if heads is None else plain_layers(heads.trunk, heads.advantages)
        if read is None or layers is None or not fit(layers.linear, rows):
            return None
        advantages = NumpyNetwork(layers.linear, layers.activation, rows)
        return _NumpyQPolicy(read, advantages, view(self.epsilon), self.actions, self.start)

    def best_actions(
        self, observations: Observations, memory: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        return self._best(self.q_values(observations), mask), memory

    def ranked_actions(self, observations: Observations, mask: Tensor | None, count: int) -> Tensor:
        """Return the actions with the largest Q-values: [batch, up to count]."""
        values = self.q_values(observations)
        values = values if mask is None else forbid(values, mask)
        return values.topk(min(count, self.actions), dim=1).indices

    @staticmethod
    def _best(values: Tensor, mask: Tensor | None) -> Tensor:
        return (values if mask is None else forbid(values, mask)).argmax(1)

    def to_env(self, actions: Tensor) -> Tensor:
        return actions + self.start if self.start else actions

    def update_normaliser(self, observations: Observations, valid: Tensor | None = None) -> None:
        """Same as `Policy.update_normaliser`."""
        self.inputs.update_normalisers(observations, valid)

    def normaliser_state(self) -> dict[str, dict[str, Array]]:
        return self.inputs.normaliser_state()

    def restore_normaliser(self, state: dict[str, dict[str, Array]]) -> None:
        self.inputs.restore_normalisers(state)


class _NumpyQPolicy:
    """Same as `QPolicy.act`; implements `NumpyPolicy`."""

    def __init__(self, read: VectorReader, advantages: NumpyNetwork, epsilon: Array, actions: int, start: int) -> None:
        self._read, self._advantages, self._epsilon = read, advantages, epsilon
        self._actions, self._start = actions, start

    def refresh(self) -> None:
        """Nothing to do: the products read the weights in place."""

    def act(self, observations: Mapping[str, Array], memory: Array, noise: Array, mask: Array | None) -> NumpyActed:
        values, anywhere = self._advantages(self._read(observations)), noise[:, 1 : 1 + self._actions]
        if mask is not None:
            values, anywhere = forbid_in_numpy(values, mask), forbid_in_numpy(anywhere, mask)
        chosen = np.where(noise[:, 0] < self._epsilon, anywhere.argmax(1), values.argmax(1))
        return NumpyActed(chosen + self._start if self._start else chosen, chosen)


def build_q_policy(
    observation_space: spaces.Space[Any], action_space: spaces.Space[Any], settings: QSettings, *, seed: int
) -> QPolicy:
    """Build a policy whose weights depend only on the seed."""
    with seeded(seed):
        return QPolicy(observation_space, action_space, settings)


def _squashed(normal: Array) -> Array:
    """The factors of factorised noise: sign(x) sqrt(|x|)."""
    return np.sign(normal) * np.sqrt(np.abs(normal))
