"""Where SAC takes the values of following observations from: target networks, or the critics themselves (CrossQ)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from envfleet.algorithms.sac_batch import Part
from envfleet.policies.flat import FlatParameters
from envfleet.policies.sac_networks import Critics
from envfleet.policies.soft_actions import Choices

__all__ = ["BootstrapValues", "CriticsAlone", "TargetNetworks"]


class BootstrapValues(Protocol):
    """The critics' values, of stored actions for the loss and of following ones for its targets."""

    def values(self, part: Part, actions: Tensor | None, following: Choices) -> tuple[Tensor, Tensor]:
        """Return values [twin, rows, n] of stored `actions` and, without a gradient, of the following choices."""

    def follow(self) -> None:
        """Follow the critics after their update."""

    def begin(self) -> None:
        """Take over the critics' weights."""

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state`."""


class TargetNetworks:
    """Copies of the critics that follow them slowly."""

    def __init__(self, critics: Critics, weights: FlatParameters, rate: float) -> None:
        self._critics, self._weights, self._rate = critics, weights, rate
        self.copies = copy.deepcopy(critics)
        self.flat = FlatParameters(self.copies)

    def values(self, part: Part, actions: Tensor | None, following: Choices) -> tuple[Tensor, Tensor]:
        critics, copies = self._critics, self.copies
        with torch.no_grad():
            led_to = copies(part.encode_following(copies.encoder), following.actions, part.dropout[1])
        return critics(part.encode_now(critics.encoder), actions, part.dropout[0]), led_to

    def follow(self) -> None:
        self.flat.data.lerp_(self._weights.data, self._rate)

    def begin(self) -> None:
        self.flat.copy_from(self._weights.data)

    def state(self) -> dict[str, Any]:
        return {"target": self.flat.data.cpu().numpy().copy()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.flat.copy_from(np.array(state["target"]))


class CriticsAlone:
    """One pass of the critics for both, so that both are normalised by the same statistics; without memory.

    A terminated step is followed by the first observation of the next episode, as it lies in the replay. Its value does
    not count, but it is part of the statistics.
    """

    def __init__(self, critics: Critics) -> None:
        self._critics = critics

    def values(self, part: Part, actions: Tensor | None, following: Choices) -> tuple[Tensor, Tensor]:
        critics, rows = self._critics, len(part.returns)
        seen = part.encode_now(critics.encoder).followed_by(part.encode_following(critics.encoder))
        both = None if actions is None or following.actions is None else torch.cat([actions, following.actions])
        values = critics(seen, both)
        return values[:, :rows], values[:, rows:].detach()

    def follow(self) -> None:
        pass

    def begin(self) -> None:
        pass

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        pass
