"""Networks as users write them, for tests that import them by name."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

NOT_CALLABLE = 3


class Encoder(nn.Module):
    """Reads a Dict of a picture and a vector; remembers what it was given."""

    def __init__(self, observation_space: spaces.Dict) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 7)
        self.seen: dict[str, Tensor] = {}

    def forward(self, observation: dict[str, Tensor]) -> Tensor:
        self.seen = observation
        features: Tensor = self.linear(observation["vector"])
        return features


class BadEncoder(nn.Module):
    """Forgets to give one row per observation."""

    def __init__(self, observation_space: spaces.Space[Any]) -> None:
        super().__init__()

    def forward(self, observation: Tensor) -> Tensor:
        return observation.sum()


class WholePolicy(nn.Module):
    """Action parameters and values at once; `width` times as many parameters as the action has numbers."""

    width = 1

    def __init__(self, observation_space: spaces.Box, action_space: spaces.Space[Any]) -> None:
        super().__init__()
        actions = int(action_space.n) if isinstance(action_space, spaces.Discrete) else action_space.shape[0]
        self.linear = nn.Linear(observation_space.shape[0], self.width * actions + 1)

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        outputs: Tensor = self.linear(observation)
        return outputs[:, :-1], outputs[:, -1]


class WithOwnDeviation(WholePolicy):
    """Mean and log_std side by side."""

    width = 2


class ValuesWithTwoDimensions(WholePolicy):
    """The usual mistake."""

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        parameters, values = super().forward(observation)
        return parameters, values.unsqueeze(1)


class ActionValues(nn.Module):
    """The value of every action; `extra` columns too many."""

    extra = 0

    def __init__(self, observation_space: spaces.Box, action_space: spaces.Discrete) -> None:
        super().__init__()
        self.linear = nn.Linear(observation_space.shape[0], int(action_space.n) + self.extra)

    def forward(self, observation: Tensor) -> Tensor:
        values: Tensor = self.linear(observation)
        return values


class TooManyValues(ActionValues):
    """As if it had a column for the state."""

    extra = 1


class Doubled(nn.Module):
    """An encoder of vectors: twice what is seen, times a weight."""

    def __init__(self, observation_space: spaces.Box) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, observation: Tensor) -> Tensor:
        return torch.cat([observation, observation], dim=1) * self.weight


def no_module(observation_space: spaces.Space[Any]) -> Any:
    return torch.tanh
