"""User-defined networks, for tests that import them by name."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

NOT_CALLABLE = 3


class Encoder(nn.Module):
    """Reads a Dict of an image and a vector; records its input in `seen`."""

    def __init__(self, observation_space: spaces.Dict) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 7)
        self.seen: dict[str, Tensor] = {}

    def forward(self, observation: dict[str, Tensor]) -> Tensor:
        self.seen = observation
        features: Tensor = self.linear(observation["vector"])
        return features


class Embedded(nn.Module):
    """Looks the category of a Discrete up, counted from its start."""

    def __init__(self, observation_space: spaces.Discrete) -> None:
        super().__init__()
        self.start = int(observation_space.start)
        self.table = nn.Embedding(int(observation_space.n), 6)

    def forward(self, observation: Tensor) -> Tensor:
        features: Tensor = self.table(observation - self.start)
        return features


class BadEncoder(nn.Module):
    """Returns a scalar instead of one row per observation."""

    def __init__(self, observation_space: spaces.Space[Any]) -> None:
        super().__init__()

    def forward(self, observation: Tensor) -> Tensor:
        return observation.sum()


class WholePolicy(nn.Module):
    """Returns action parameters and values; `width` parameters per action dimension."""

    width = 1

    def __init__(self, observation_space: spaces.Box, action_space: spaces.Space[Any]) -> None:
        super().__init__()
        actions = int(action_space.n) if isinstance(action_space, spaces.Discrete) else action_space.shape[0]
        self.linear = nn.Linear(observation_space.shape[0], self.width * actions + 1)

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        outputs: Tensor = self.linear(observation)
        return outputs[:, :-1], outputs[:, -1]


class WithOwnDeviation(WholePolicy):
    """Returns mean and log_std side by side."""

    width = 2


class ValuesWithTwoDimensions(WholePolicy):
    """Returns values of shape [n, 1], a common mistake."""

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        parameters, values = super().forward(observation)
        return parameters, values.unsqueeze(1)


class Indifferent(nn.Module):
    """Gives every action the same probability. Its outputs are views of a parameter."""

    def __init__(self, observation_space: spaces.Box, action_space: spaces.Discrete) -> None:
        super().__init__()
        self.outputs = nn.Parameter(torch.zeros(1, int(action_space.n) + 1))

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        outputs = self.outputs.expand(len(observation), -1)
        return outputs[:, :-1], outputs[:, -1]


class ActionValues(nn.Module):
    """Returns the value of every action, plus `extra` columns."""

    extra = 0

    def __init__(self, observation_space: spaces.Box, action_space: spaces.Discrete) -> None:
        super().__init__()
        self.linear = nn.Linear(observation_space.shape[0], int(action_space.n) + self.extra)

    def forward(self, observation: Tensor) -> Tensor:
        values: Tensor = self.linear(observation)
        return values


class TooManyValues(ActionValues):
    """Has one column too many, as if for the state value."""

    extra = 1


class Doubled(nn.Module):
    """Encoder of vectors: the observation twice, times a weight."""

    def __init__(self, observation_space: spaces.Box) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, observation: Tensor) -> Tensor:
        return torch.cat([observation, observation], dim=1) * self.weight


def no_module(observation_space: spaces.Space[Any]) -> Any:
    return torch.tanh
