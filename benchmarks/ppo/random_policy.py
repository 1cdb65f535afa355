"""Policy that ignores observations and picks actions uniformly: only the cost of collecting remains."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Indifferent(nn.Module):
    """Return equal logits for all actions and the same value for all observations."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        super().__init__()
        self.outputs = nn.Parameter(torch.zeros(1, int(action_space.n) + 1))

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        outputs = self.outputs.expand(len(observation), -1)
        return outputs[:, :-1], outputs[:, -1]
