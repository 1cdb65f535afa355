"""The networks of SAC: an actor, twin critics, and the features of observations that both read.

Vectors are their own features. Images go through a CNN, which the twin critics share and the actor does not.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from envfleet.errors import SettingsError
from envfleet.policies.encoders import MLP, image_encoder
from envfleet.policies.inputs import Inputs, JoinedInputs, NestedInputs, checked_leaves, is_image
from envfleet.policies.own_networks import own_trunk
from envfleet.policies.sac_settings import SACPolicySettings
from envfleet.policies.settings import NETWORKS
from envfleet.policies.soft_actions import SoftActions
from envfleet.policies.twins import Twins

__all__ = ["Actor", "Critics", "Features", "Temperature", "build_features"]


class Features(nn.Module):
    """Features [rows, size] of a preprocessed observation: its vector, then those of each other part's encoder."""

    def __init__(self, encoders: list[nn.Module], sizes: list[int], vector_size: int) -> None:
        super().__init__()
        self.encoders = nn.ModuleList(encoders)
        self.size = vector_size + sum(sizes)
        self._has_vector = vector_size > 0
        self.plain = not encoders  # just the vector

    def forward(self, parts: list[Any]) -> Tensor:
        if self.plain:
            vector: Tensor = parts[0]
            return vector
        vectors = parts[:1] if self._has_vector else []
        others = [encode(part) for encode, part in zip(self.encoders, parts[len(vectors) :], strict=True)]
        return torch.cat([*vectors, *others], dim=1)


def build_features(
    observation_space: spaces.Space[Any], settings: SACPolicySettings, count: int
) -> tuple[Inputs, list[Features]]:
    """Build the inputs, and `count` encoders of them with weights of their own."""
    leaves, normalise = checked_leaves(observation_space), settings.normalise_observations
    if settings.network not in NETWORKS:
        nested = NestedInputs(observation_space, leaves, normalise=normalise)
        trunks = [own_trunk(settings.network, observation_space, nested) for _ in range(count)]
        return nested, [Features([_OnlyPart(trunk)], [trunk.size], 0) for trunk in trunks]
    network = str(settings.network)
    images = [] if network == "mlp" else [leaf for leaf in leaves if is_image(leaf)]
    if network not in ("auto", "mlp") and not images:
        raise SettingsError(
            f"network is {network!r}, but the observation has no image (a Box of three dimensions, uint8 or float)",
            hint="use network 'auto' or 'mlp'",
        )
    inputs = JoinedInputs(leaves, images, normalise=normalise)
    found = []
    for _ in range(count):
        encoders = [image_encoder(network, leaf) for leaf in images]
        found.append(Features(list(encoders), [encoder.size for encoder in encoders], inputs.vector_size))
    return inputs, found


class _OnlyPart(nn.Module):
    """A trunk as the encoder of the only part."""

    def __init__(self, trunk: nn.Module) -> None:
        super().__init__()
        self.trunk = trunk

    def forward(self, part: Any) -> Tensor:
        features: Tensor = self.trunk([part])
        return features


class Actor(nn.Module):
    """From observations to the parameters of the actions: all that acting needs.

    `random` is 1 while actions are to be uniformly random. It is part of the weights, so it reaches the workers.
    """

    random: Tensor

    def __init__(self, inputs: Inputs, features: Features, actions: SoftActions, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.inputs, self.features = inputs, features
        self.mlp = MLP(features.size, hidden, "relu")
        self.head = nn.Linear(self.mlp.size, actions.parameter_size)
        for layer in self.mlp.layers:
            assert isinstance(layer, nn.Linear)
            layer.reset_parameters()  # as in published results of SAC; the orthogonal weights are those of PPO
        self.register_buffer("random", torch.zeros(()))

    def forward(self, features: Tensor) -> Tensor:
        """Return the parameters of the actions [rows, n]."""
        parameters: Tensor = self.head(self.mlp(features))
        return parameters


class Critics(nn.Module):
    """Twin critics with the same features."""

    def __init__(self, features: Features, actions: SoftActions, settings: SACPolicySettings) -> None:
        super().__init__()
        self.features = features
        self.twins = Twins(
            features.size + actions.critic_inputs,
            settings.hidden,
            actions.critic_outputs,
            normalised=settings.layer_norm,
            dropout=settings.dropout,
        )

    def forward(
        self, features: Tensor, actions: Tensor | None, dropout: Tensor | None = None, *, frozen: bool = False
    ) -> Tensor:
        """Return values [twin, rows, n]. With `frozen` weights, gradients reach the actions only."""
        rows = features if actions is None else torch.cat([features, actions], dim=1)
        values: Tensor = self.twins(rows, dropout, frozen=frozen)
        return values


class Temperature(nn.Module):
    """The weight of the entropy, alpha, kept above zero by its logarithm."""

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.tensor(math.log(initial)))

    @property
    def alpha(self) -> Tensor:
        return self.log.detach().exp()
