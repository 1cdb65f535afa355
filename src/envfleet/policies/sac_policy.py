"""`SACPolicy`: an actor whose spread depends on the observation, and twin critics that never act."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from torch import Tensor, nn

from envfleet.policies.numpy_memory import NumpyHistory
from envfleet.policies.numpy_networks import NumpyNetwork, VectorReader, fit, vector_reader, view
from envfleet.policies.policy import Observations
from envfleet.policies.protocol import Acted, NumpyActed, Recorded
from envfleet.policies.sac_networks import Temperature, build_networks
from envfleet.policies.sac_settings import SACPolicySettings
from envfleet.policies.soft_actions import SoftActions, build_soft_actions
from envfleet.policies.weights import seeded

__all__ = ["SACPolicy", "build_sac_policy"]

Array = np.ndarray[Any, Any]


class SACPolicy(nn.Module):
    """An actor, twin critics and the temperature, for one observation space and a Box or Discrete action space."""

    def __init__(
        self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], settings: SACPolicySettings
    ) -> None:
        super().__init__()
        self.actions: SoftActions = build_soft_actions(action_space)
        self.actor, self.critics = build_networks(observation_space, action_space, self.actions, settings)
        self.temperature = Temperature(settings.temperature)
        self.memory_size, self.mask_size = self.actor.encoder.memory_size, self.actions.mask_size
        self.action_shape, self.action_dtype = self.actions.action_shape, self.actions.action_dtype
        self.recorded: Recorded = {}

    @property
    def acting_module(self) -> nn.Module:
        return self.actor

    def draw_noise(self, generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return self.actions.draw_noise(generator, shape)

    def act(self, observations: Observations, memory: Tensor, noise: Tensor, mask: Tensor | None = None) -> Acted:
        parameters, memory = self._decide(observations, memory)
        return Acted(self.actions.sample(parameters, noise, mask, self.actor.random), memory)

    def best_actions(
        self, observations: Observations, memory: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        parameters, memory = self._decide(observations, memory)
        return self.actions.mode(parameters, mask), memory

    def _decide(self, observations: Observations, memory: Tensor) -> tuple[Tensor, Tensor]:
        actor = self.actor
        seen, memory = actor.encoder.step(actor.inputs(observations), memory)
        return actor(seen), memory

    def to_env(self, actions: Tensor) -> Tensor:
        return self.actions.to_env(actions)

    def numpy_version(self, rows: int) -> _NumpySACPolicy | None:
        """Return a NumPy version for batches of `rows`, if the actor is a small MLP on one vector."""
        actor, read = self.actor, vector_reader(self.actor.inputs)
        layers = [layer for layer in (*actor.mlp.layers, actor.head) if isinstance(layer, nn.Linear)]
        history, join = actor.encoder.history, actor.join
        if read is None or not actor.encoder.features.plain or not (history is not None or fit(layers, rows)):
            return None
        remember = None if history is None or join is None else NumpyHistory(history, join, rows)
        network = NumpyNetwork(layers, "relu", rows)
        return _NumpySACPolicy(read, remember, network, view(actor.random), self.actions)

    def update_normaliser(self, observations: Observations, valid: Tensor | None = None) -> None:
        """Same as `Policy.update_normaliser`."""
        self.actor.inputs.update_normalisers(observations, valid)

    def normaliser_state(self) -> dict[str, dict[str, Array]]:
        return self.actor.inputs.normaliser_state()

    def restore_normaliser(self, state: dict[str, dict[str, Array]]) -> None:
        self.actor.inputs.restore_normalisers(state)


class _NumpySACPolicy:
    """Same as `SACPolicy.act`; implements `NumpyPolicy`."""

    def __init__(
        self,
        read: VectorReader,
        remember: NumpyHistory | None,
        network: NumpyNetwork,
        random: Array,
        actions: SoftActions,
    ) -> None:
        self._read, self._remember, self._network = read, remember, network
        self._random, self._actions = random, actions

    def refresh(self) -> None:
        """Read the weights again after they changed."""
        if self._remember is not None:
            self._remember.refresh()

    def act(self, observations: Mapping[str, Array], memory: Array, noise: Array, mask: Array | None) -> NumpyActed:
        rows = self._read(observations)
        parameters = self._network(rows if self._remember is None else self._remember(rows, memory))
        drawn = self._actions.sample_in_numpy(parameters, noise, mask, self._random)
        return NumpyActed(self._actions.to_env_in_numpy(drawn), drawn)


def build_sac_policy(
    observation_space: spaces.Space[Any], action_space: spaces.Space[Any], settings: SACPolicySettings, *, seed: int
) -> SACPolicy:
    """Build a policy whose weights depend only on the seed."""
    with seeded(seed):
        return SACPolicy(observation_space, action_space, settings)
