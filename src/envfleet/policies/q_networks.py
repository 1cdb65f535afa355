"""Q-networks: from a preprocessed observation to the values of all actions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

from envfleet.errors import SettingsError
from envfleet.policies.encoders import Trunk, build_trunk
from envfleet.policies.inputs import Inputs, JoinedInputs, NestedInputs, checked_leaves, is_image, scale_of
from envfleet.policies.own_networks import ROWS, dummy_pass, own_module, own_trunk, shape_of
from envfleet.policies.q_settings import Q_NETWORKS, QSettings
from envfleet.policies.weights import HIDDEN_GAIN, VALUE_HEAD_GAIN, orthogonal, refuse_too_large

__all__ = ["PlainHeads", "QNetwork", "build_q_parts"]


class PlainHeads(NamedTuple):
    """A trunk and linear heads; the best action has the largest output of `advantages`."""

    trunk: nn.Module
    advantages: nn.Linear
    state: nn.Linear | None  # if the network is dueling


class QNetwork(nn.Module):
    """Interface of the Q-networks: `forward(parts, noise)` returns values [batch, action]."""

    noise_size = 0  # of noisy heads

    def plain_heads(self) -> PlainHeads | None:
        """Return the trunk and its linear heads, or None if the network is of another kind."""
        return None


def build_q_parts(
    observation_space: spaces.Space[Any], action_space: spaces.Discrete, settings: QSettings
) -> tuple[Inputs, QNetwork]:
    """Build the inputs and the Q-network."""
    leaves, actions, normalise = checked_leaves(observation_space), int(action_space.n), settings.normalise_observations
    trunk: Trunk
    if settings.policy is not None or settings.network not in Q_NETWORKS:
        inputs: Inputs = NestedInputs(observation_space, leaves, normalise=normalise)
        if settings.policy is not None:
            return inputs, _own_values(settings.policy, observation_space, action_space, inputs)
        trunk = own_trunk(settings.network, observation_space, inputs)
        return inputs, _Values(trunk, actions, dueling=settings.dueling, noisy=settings.noisy)
    network = str(settings.network)
    images = [] if network == "mlp" else [leaf for leaf in leaves if is_image(leaf)]
    joined = JoinedInputs(leaves, images, normalise=normalise)
    if network == "cells":
        return joined, _CellValues(leaves, actions, settings.hidden, dueling=settings.dueling)
    trunk = build_trunk(joined, images, network, settings.hidden, settings.activation)
    return joined, _Values(trunk, actions, dueling=settings.dueling, noisy=settings.noisy)


class _OwnValues(QNetwork):
    """A user's own module that returns the values of all actions."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, parts: list[Any], noise: Tensor | None) -> Tensor:
        values: Tensor = self.module(parts[0])
        return values


def _own_values(
    given: str | Callable[..., Any], observation_space: spaces.Space[Any], action_space: spaces.Discrete, inputs: Inputs
) -> _OwnValues:
    module = own_module(given, "policy", observation_space, action_space)
    values, expected = dummy_pass(module, inputs, f"policy {given!r}"), (ROWS, int(action_space.n))
    if not isinstance(values, Tensor) or tuple(values.shape) != expected:
        raise SettingsError(
            f"the policy gave {shape_of(values)} for {ROWS} observations, expected values {expected}",
            hint="DQN wants the value of every action: one row per observation, one column per action",
        )
    return _OwnValues(module)


class _Values(QNetwork):
    """A trunk and a Q-value head; dueling networks have separate heads for state value and advantages."""

    def __init__(self, trunk: Any, actions: int, *, dueling: bool, noisy: bool) -> None:
        super().__init__()
        self.trunk = trunk
        kind = _NoisyLinear if noisy else _PlainLinear
        self.advantages = kind(trunk.size, actions)
        self.state = kind(trunk.size, 1) if dueling else None
        self.noise_size = trunk.size + actions + (1 if dueling else 0)
        self._sizes = (trunk.size, actions)

    def forward(self, parts: list[Any], noise: Tensor | None) -> Tensor:
        features = self.trunk(parts)
        into = of_actions = of_state = None
        if noise is not None:
            inputs, actions = self._sizes
            into, of_actions = noise[:, :inputs], noise[:, inputs : inputs + actions]
            of_state = noise[:, inputs + actions :]
        advantages: Tensor = self.advantages(features, into, of_actions)
        if self.state is None:
            return advantages
        # Wang et al. 2016: only differences of advantages matter, so their mean is subtracted.
        state: Tensor = self.state(features, into, of_state)
        return state + advantages - advantages.mean(1, keepdim=True)

    def plain_heads(self) -> PlainHeads | None:
        if not isinstance(self.advantages, _PlainLinear):
            return None
        state = self.state.layer if isinstance(self.state, _PlainLinear) else None
        return PlainHeads(self.trunk, self.advantages.layer, state)


class _PlainLinear(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(inputs, outputs)
        orthogonal(self.layer, VALUE_HEAD_GAIN)

    def forward(self, features: Tensor, into: Tensor | None, out: Tensor | None) -> Tensor:
        found: Tensor = self.layer(features)
        return found


class _NoisyLinear(nn.Module):
    """Linear layer with learned, factorised noise (Fortunato et al. 2018): one number per input and one per output.

    Every row has its own noise, w = mu + sigma * (out x in). This costs a second product, not a copy of the weights per
    row.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.mean = nn.Linear(inputs, outputs)
        self.spread = nn.Linear(inputs, outputs)
        bound = inputs**-0.5
        nn.init.uniform_(self.mean.weight, -bound, bound)
        nn.init.uniform_(self.mean.bias, -bound, bound)
        nn.init.constant_(self.spread.weight, 0.5 * bound)
        nn.init.constant_(self.spread.bias, 0.5 * bound)

    def forward(self, features: Tensor, into: Tensor | None, out: Tensor | None) -> Tensor:
        found: Tensor = self.mean(features)
        if into is None or out is None:
            return found
        return found + out * functional.linear(features * into, self.spread.weight, self.spread.bias)


class _CellValues(QNetwork):
    """Fully convolutional: one value per cell (or block) of a grid, from its surroundings and the whole grid.

    Each layer reaches twice as far as the one before, up to `_FARTHEST` cells. Layers of equal width are residual.
    """

    _FARTHEST = 8

    def __init__(self, leaves: list[Any], actions: int, channels: tuple[int, ...], *, dueling: bool) -> None:
        super().__init__()
        (leaf,) = leaves if len(leaves) == 1 else (None,)
        if leaf is None or not is_image(leaf):
            raise SettingsError("the network 'cells' needs one grid [channels, height, width] as the observation")
        self._last, self._block = _grid_of(leaf.shape, actions)
        self._scale = scale_of(leaf)
        seen = leaf.shape[2] if self._last else leaf.shape[0]
        widths = list(pairwise((seen, *channels)))
        refuse_too_large(f"layers of {' and '.join(map(str, channels))} channels", sum(9 * n * m for n, m in widths))
        self.layers = nn.ModuleList()
        for number, width in enumerate(channels):
            reach = min(2**number, self._FARTHEST)
            self.layers.append(nn.Conv2d(seen, width, 3, padding=reach, dilation=reach))
            seen = width
        self.whole = nn.Linear(seen, seen)
        self.cell = nn.Conv2d(seen, 1, 1)
        self.state = nn.Linear(seen, 1) if dueling else None
        for layer in (*self.layers, self.whole):
            orthogonal(layer, HIDDEN_GAIN)
        orthogonal(self.cell, VALUE_HEAD_GAIN)

    def forward(self, parts: list[Any], noise: Tensor | None) -> Tensor:
        (grid,) = parts
        grid = grid.permute(0, 3, 1, 2) if self._last else grid
        # Convolutions run up to twice as fast in torch's channels_last format.
        near = (grid.float() * self._scale).contiguous(memory_format=torch.channels_last)
        for layer in self.layers:
            found = torch.relu(layer(near))
            near = near + found if near.shape == found.shape else found
        whole = torch.relu(self.whole(near.mean(dim=(2, 3))))
        values = self.cell(near + whole[:, :, None, None])
        advantages: Tensor = (values if self._block == 1 else functional.avg_pool2d(values, self._block)).flatten(1)
        if self.state is None:
            return advantages
        value: Tensor = self.state(whole)
        return value + advantages - advantages.mean(1, keepdim=True)


def _grid_of(shape: tuple[int, ...], actions: int) -> tuple[bool, int]:
    """Return whether the channels of a grid come last, and the width of an action's block in cells."""
    for last, (height, width) in ((False, shape[1:]), (True, shape[:2])):
        for block in range(1, min(height, width) + 1):
            if height % block == width % block == 0 and height * width == actions * block**2:
                return last, block
    raise SettingsError(
        f"the network 'cells' has one value per cell or block of a grid {shape}, but there are {actions} actions",
        hint="use network 'auto'",
    )
