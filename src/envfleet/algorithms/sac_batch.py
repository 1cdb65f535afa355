"""The parts of a batch for SAC's update: one for each learner thread."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envfleet.policies.sac_networks import Actor, Features
from envfleet.rollout.replay import Experience

__all__ = ["Noise", "Part", "split"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Noise:
    """The random numbers of one update, for all rows of its batch."""

    actions: Array | None  # [2, rows, n]: for actions in the observations, and in those to bootstrap from
    dropout: Array | None  # [3, rows, n]: for the critics' loss, the target critics and the actor's loss


@dataclass
class Part:
    """Some transitions of a batch, as tensors."""

    now: list[Any]  # preprocessed observations
    following: list[Any]  # those to bootstrap from
    actions: Tensor  # [rows, ...]
    returns: Tensor  # [rows]
    discounts: Tensor  # [rows]
    weights: Tensor  # [rows]: of the rows in the loss; all parts together sum to 1 without importance weights
    allowed: Tensor | None  # [rows, action]: action masks of the observations
    allowed_following: Tensor | None
    action_noise: list[Tensor | None]  # now, following
    dropout: list[Tensor | None]  # critics, target critics, actor

    # --- the features that the networks read. Gradients are recorded if the caller enables them.

    def actor_features(self, actor: Actor) -> tuple[Tensor, Tensor]:
        """Return the actor's features of the observations and, without a gradient, of those to bootstrap from."""
        with torch.no_grad():
            following = actor.features(self.following)
        return actor.features(self.now), following

    def features(self, network: Features) -> Tensor:
        """Return the critics' features of the observations."""
        found: Tensor = network(self.now)
        return found

    def following_features(self, network: Features) -> Tensor:
        """Return the target critics' features of the observations to bootstrap from."""
        found: Tensor = network(self.following)
        return found


def split(
    batch: Experience, importance_weights: Array | None, noise: Noise, actor: Actor, parts: int, device: torch.device
) -> list[Part]:
    """Split a batch into `parts` of equal size (the last one may be smaller)."""
    rows = len(batch.entries)
    shares = np.full(rows, 1.0 / rows, np.float32)
    if importance_weights is not None:
        shares *= importance_weights
    return [
        _part(batch, shares, noise, actor, slice(first, min(first + size, rows)), device)
        for first, size in _slices(rows, parts)
    ]


def _slices(rows: int, parts: int) -> Iterator[tuple[int, int]]:
    size = -(-rows // parts)
    return ((first, size) for first in range(0, rows, size))


def _part(batch: Experience, shares: Array, noise: Noise, actor: Actor, part: slice, device: torch.device) -> Part:
    def tensor(array: Array) -> Tensor:
        found = torch.from_numpy(array[part])
        return found if device.type == "cpu" else found.to(device)

    def rows_of(arrays: Array | None, count: int) -> list[Tensor | None]:
        return [None] * count if arrays is None else [tensor(array) for array in arrays]

    return Part(
        now=actor.inputs({name: tensor(array) for name, array in batch.observations.items()}),
        following=actor.inputs({name: tensor(array) for name, array in batch.following.items()}),
        actions=tensor(batch.actions),
        returns=tensor(batch.returns),
        discounts=tensor(batch.discounts),
        weights=tensor(shares),
        allowed=None if batch.allowed is None else tensor(batch.allowed),
        allowed_following=None if batch.masks is None else tensor(batch.masks),
        action_noise=rows_of(noise.actions, 2),
        dropout=rows_of(noise.dropout, 3),
    )
