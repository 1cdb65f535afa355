"""The networks of SAC: an actor and twin critics, each behind an encoder of its own; the twins share theirs.

An encoder turns observations into features: vectors are their own, images go through a CNN. With memory, a GRU or LSTM
then runs over the features of an episode (`policies/history.py`), and heads read its output beside an embedding of the
current observation. The action enters the critics behind the encoder.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from gymnasium import spaces
from torch import Tensor, nn

from envfleet.errors import SettingsError
from envfleet.policies.batch_norm_twins import BatchNormTwins
from envfleet.policies.encoders import MLP, image_encoder
from envfleet.policies.history import HeadInput, HistoryEncoder, build_history
from envfleet.policies.history_settings import HistorySettings
from envfleet.policies.inputs import Inputs, JoinedInputs, NestedInputs, checked_leaves, is_image
from envfleet.policies.own_networks import own_trunk
from envfleet.policies.relu_layers import relu_layers
from envfleet.policies.sac_settings import SACPolicySettings
from envfleet.policies.settings import NETWORKS
from envfleet.policies.soft_actions import SoftActions
from envfleet.policies.twins import Twins

__all__ = ["Actor", "Critics", "Encoded", "Encoder", "Temperature", "build_networks"]


class Encoded(NamedTuple):
    """Encoded observations."""

    rows: Tensor  # [rows, n]: features; with memory, those of the observation without previous action and reward
    remembered: Tensor | None = None  # [rows, units]: the memory's output

    def part(self, rows: slice) -> Encoded:
        """Return some of the rows."""
        return Encoded(self.rows[rows], None if self.remembered is None else self.remembered[rows])

    def followed_by(self, other: Encoded) -> Encoded:
        """Return these rows, then those of `other`; without memory."""
        return Encoded(torch.cat([self.rows, other.rows]))


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


class Encoder(nn.Module):
    """Features and, if there is memory, a history over them."""

    def __init__(self, features: Features, history: HistoryEncoder | None) -> None:
        super().__init__()
        self.features, self.history = features, history
        self.memory_size = 0 if history is None else history.memory_size
        self.plain = features.plain and history is None  # observations are their own features

    def forward(self, parts: list[Any], times: int = 1) -> Encoded:
        """Encode rows; with memory they are sequences of `times` steps, [times x batch, ...], from zero memory."""
        features: Tensor = self.features(parts)
        history = self.history
        if history is None:
            return Encoded(features)
        remembered = history.run(features.view(times, -1, features.shape[1]))
        return Encoded(history.observed(features), remembered.flatten(0, 1))

    def step(self, parts: list[Any], memory: Tensor) -> tuple[Encoded, Tensor]:
        """Encode one step of every row and return the memory after it."""
        features: Tensor = self.features(parts)
        if self.history is None:
            return Encoded(features), memory
        remembered, memory = self.history.step(features, memory)
        return Encoded(self.history.observed(features), remembered), memory

    def head_input(self, settings: HistorySettings | None, action_size: int = 0) -> HeadInput | None:
        """Build what joins the memory's output with the current observation (and action); None without memory."""
        if self.history is None or settings is None:
            return None
        embedding = settings.observation_embedding
        return HeadInput(self.history.units, self.history.observation_size, embedding, action_size=action_size)


class Actor(nn.Module):
    """From observations to the parameters of the actions: all that acting needs.

    `random` is 1 while actions are to be uniformly random. It is part of the weights, so it reaches the workers.
    """

    random: Tensor

    def __init__(self, inputs: Inputs, encoder: Encoder, actions: SoftActions, settings: SACPolicySettings) -> None:
        super().__init__()
        self.inputs, self.encoder = inputs, encoder
        self.join = encoder.head_input(settings.history)
        self.mlp = MLP(encoder.features.size if self.join is None else self.join.size, settings.hidden, "relu")
        self.head = nn.Linear(self.mlp.size, actions.parameter_size)
        for layer in self.mlp.layers:
            assert isinstance(layer, nn.Linear)
            layer.reset_parameters()  # as in published results of SAC; the orthogonal weights are those of PPO
        self.register_buffer("random", torch.zeros(()))
        # A plain attribute: looking up a parameter costs as much as a small tensor operation.
        self.layers = [tensor for layer in (*self.mlp.layers, self.head) for tensor in layer.parameters()]

    def forward(self, seen: Encoded, graded: int | None = None) -> Tensor:
        """Return the parameters of the actions [rows, n]; only the first `graded` rows have a gradient."""
        inputs = [seen.rows] if self.join is None else self.join(seen.remembered, seen.rows)
        return relu_layers(inputs, self.layers, graded).squeeze(0)


class Critics(nn.Module):
    """Twin critics behind one encoder."""

    def __init__(self, encoder: Encoder, actions: SoftActions, settings: SACPolicySettings) -> None:
        super().__init__()
        self.encoder = encoder
        self.join = encoder.head_input(settings.history, actions.critic_inputs)
        inputs = encoder.features.size + actions.critic_inputs if self.join is None else self.join.size
        self.twins = _build_twins(inputs, actions.critic_outputs, settings)

    def forward(
        self, seen: Encoded, actions: Tensor | None, dropout: Tensor | None = None, *, frozen: bool = False
    ) -> Tensor:
        """Return values [twin, rows, n]. With `frozen` weights, gradients reach the actions only."""
        if self.join is not None:
            inputs = self.join(seen.remembered, seen.rows, actions, frozen=frozen)
        else:
            inputs = [seen.rows] if actions is None else [seen.rows, actions]
        values: Tensor = self.twins(*inputs, dropout=dropout, frozen=frozen)
        return values


def _build_twins(inputs: int, outputs: int, settings: SACPolicySettings) -> Twins | BatchNormTwins:
    if settings.batch_norm:
        return BatchNormTwins(inputs, settings.hidden, outputs)
    return Twins(inputs, settings.hidden, outputs, normalised=settings.layer_norm, dropout=settings.dropout)


class Temperature(nn.Module):
    """The weight of the entropy, alpha, kept above zero by its logarithm."""

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.tensor(math.log(initial)))

    @property
    def alpha(self) -> Tensor:
        return self.log.detach().exp()

    def set(self, alpha: float) -> None:
        """Set alpha in place."""
        with torch.no_grad():
            self.log.fill_(math.log(alpha))


def build_networks(
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    actions: SoftActions,
    settings: SACPolicySettings,
) -> tuple[Actor, Critics]:
    """Build the actor and the critics that the spaces and settings require."""
    inputs, (of_actor, of_critics) = _build_features(observation_space, settings, 2)

    def encoder(features: Features, *, remembers: bool) -> Encoder:
        if settings.history is None or not remembers:
            return Encoder(features, None)
        if not isinstance(inputs, JoinedInputs):
            raise SettingsError(
                "memory reads the observation as a vector, but a network of your own gets it as it is",
                hint="leave out network, or memory",
            )
        return Encoder(features, build_history(inputs, features.size, action_space, settings.history))

    actor = Actor(inputs, encoder(of_actor, remembers=not settings.markov_actor), actions, settings)
    return actor, Critics(encoder(of_critics, remembers=True), actions, settings)


def _build_features(
    observation_space: spaces.Space[Any], settings: SACPolicySettings, count: int
) -> tuple[Inputs, list[Features]]:
    """Build the inputs, and `count` networks on them with weights of their own."""
    leaves, normalise = checked_leaves(observation_space), settings.normalise_observations
    if settings.network not in NETWORKS:
        nested = NestedInputs(observation_space, leaves, normalise=normalise)
        trunks = [own_trunk(settings.network, observation_space, nested) for _ in range(count)]
        return nested, [Features([_OnlyPart(trunk)], [trunk.size], 0) for trunk in trunks]
    network = str(settings.network)
    images = [] if network == "mlp" else [leaf for leaf in leaves if is_image(leaf)]
    if network not in ("auto", "mlp") and not images:
        raise SettingsError(
            f"network is {network!r}, but the observation has no image: a Box of three dimensions, of uint8, bool "
            "or float",
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
