"""A third kind of policy, as another package would define it: an actor as in SAC, and two critics that never act.

The standard deviation depends on the observation, and is recorded. The memory is an Elman network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from envfleet.policies import Acted, NumpyActed, register_policy_kind
from envfleet.policies.weights import seeded

Array = np.ndarray[Any, Any]


@register_policy_kind
@dataclass(frozen=True)
class TanhGaussianSettings:
    """Implements `PolicyBuilder`."""

    kind: ClassVar[str] = "tanh-gaussian"
    units: int = 8
    remembers: bool = False
    in_numpy: bool = False

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(**data)

    def build(
        self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], *, seed: int
    ) -> TanhGaussianPolicy:
        assert isinstance(observation_space, spaces.Box) and isinstance(action_space, spaces.Box)
        with seeded(seed):
            return TanhGaussianPolicy(observation_space.shape[0], action_space.shape[0], self)


class Actor(nn.Module):
    """Means and log standard deviations."""

    def __init__(self, inputs: int, actions: int, settings: TanhGaussianSettings) -> None:
        super().__init__()
        self.hidden = nn.Linear(inputs, settings.units)
        self.recurrent = nn.Linear(settings.units, settings.units) if settings.remembers else None
        self.head = nn.Linear(settings.units, 2 * actions)

    def forward(self, rows: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        features = self.hidden(0.01 * rows)
        if self.recurrent is not None:
            features = memory = torch.tanh(features + self.recurrent(memory))
        mean, log_std = self.head(torch.tanh(features)).chunk(2, dim=1)
        return mean, log_std, memory


class TanhGaussianPolicy(nn.Module):
    """Implements `ActingPolicy`, for a vector and actions in [-1, 1]."""

    mask_size = 0
    action_dtype = np.dtype(np.float32)

    def __init__(self, inputs: int, actions: int, settings: TanhGaussianSettings) -> None:
        super().__init__()
        self.actor = Actor(inputs, actions, settings)
        self.critics = nn.ModuleList(nn.Linear(inputs + actions, 1) for _ in range(2))
        self.memory_size = settings.units if settings.remembers else 0
        self.action_shape = (actions,)
        self.recorded: dict[str, tuple[tuple[int, ...], str]] = {"std": ((actions,), "<f4")}
        self._in_numpy = settings.in_numpy

    @property
    def acting_module(self) -> nn.Module:
        return self.actor

    def draw_noise(self, generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return generator.standard_normal((*shape, *self.action_shape), np.float32)

    def act(self, observations: dict[str, Tensor], memory: Tensor, noise: Tensor, mask: Tensor | None = None) -> Acted:
        mean, log_std, memory = self.actor(observations[""], memory)
        std = log_std.exp()
        return Acted(torch.tanh(mean + std * noise), memory, (std,))

    def best_actions(
        self, observations: dict[str, Tensor], memory: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        mean, _, memory = self.actor(observations[""], memory)
        return torch.tanh(mean), memory

    def to_env(self, actions: Tensor) -> Tensor:
        return actions

    def numpy_version(self, rows: int) -> InNumpy | None:
        return InNumpy(self.actor) if self._in_numpy else None

    def normaliser_state(self) -> dict[str, dict[str, Array]]:
        return {}

    def restore_normaliser(self, state: dict[str, dict[str, Array]]) -> None:
        pass


class InNumpy:
    """Implements `NumpyPolicy`, without memory."""

    def __init__(self, actor: Actor) -> None:
        self._layers = [[part.detach().numpy() for part in layer.parameters()] for layer in (actor.hidden, actor.head)]

    def refresh(self) -> None:
        pass

    def act(self, observations: Mapping[str, Array], memory: Array, noise: Array, mask: Array | None) -> NumpyActed:
        (weight, bias), (head_weight, head_bias) = self._layers
        features = np.tanh(np.float32(0.01) * observations[""] @ weight.T + bias)
        mean, log_std = np.split(features @ head_weight.T + head_bias, 2, axis=1)
        std = np.exp(log_std)
        actions = np.tanh(mean + std * noise)
        return NumpyActed(actions, actions, (std,))
