"""The parts of a batch for SAC's update, one for each learner thread: transitions, or sequences for a memory.

Both give the update rows of encoded observations, from which the step starts (`now`) and to which it leads
(`following`). A sequence is encoded once for both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from envfleet.policies.devices import to_device
from envfleet.policies.inputs import Inputs
from envfleet.policies.sac_networks import Actor, Encoded, Encoder
from envfleet.policies.soft_actions import Choices
from envfleet.rollout.replay import Experience
from envfleet.rollout.sequences import Sequences

__all__ = ["ActorStep", "CriticStep", "Noise", "Part", "split_sequences", "split_transitions"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Noise:
    """The random numbers of one update."""

    actions: Array | None  # [2, *rows, n]: for actions in the observations, and in the following ones
    dropout: Array | None  # [3, *rows, n]: for the critics' loss, the target critics and the actor's loss


@dataclass
class Part:
    """Some rows of a batch, as tensors. With memory, a row is one step of one sequence, in the order [time, batch]."""

    seen: list[Any] | None  # preprocessed observations of sequences, one step more than there are actions
    now: list[Any]  # preprocessed observations
    following: list[Any]  # those to bootstrap from; empty for sequences
    times: int  # steps of a sequence; 1 for transitions
    actions: Tensor  # [rows, ...]
    returns: Tensor  # [rows]
    discounts: Tensor  # [rows]
    weights: Tensor  # [rows]: of the rows in the loss
    allowed: Tensor | None  # [2 rows, action]: action masks of the observations, then of those to bootstrap from
    action_noise: Tensor | None  # [2 rows, n]: likewise
    dropout: list[Tensor | None]  # critics, target critics, actor

    def encode_now(self, encoder: Encoder) -> Encoded:
        """Encode the observations."""
        found: Encoded = encoder(self.now, self.times)
        return found

    def encode_following(self, encoder: Encoder) -> Encoded:
        """Encode the observations to bootstrap from."""
        if self.seen is None:
            found: Encoded = encoder(self.following)
            return found
        return encoder(self.seen, self.times + 1).part(slice(self._batch, None))  # type: ignore[no-any-return]

    def act(self, actor: Actor) -> Tensor:
        """Return the actor's parameters [2 rows, n]: in the observations, then in those to bootstrap from.

        One pass serves both. The second half has no gradient.
        """
        rows = len(self.returns)
        if self.seen is None:
            with torch.no_grad():
                following = self.encode_following(actor.encoder)
            parameters: Tensor = actor(self.encode_now(actor.encoder).followed_by(following), rows)
            return parameters
        parameters = actor(actor.encoder(self.seen, self.times + 1))
        return torch.cat([parameters[:rows], parameters.detach()[self._batch :]])

    @property
    def _batch(self) -> int:
        return len(self.returns) // self.times


class CriticStep(NamedTuple):
    """Results of a part for the critics. Sums are weighted by the rows' `weights`."""

    gradients: list[Tensor] | None  # None if they are in the flat gradient already
    loss: Tensor
    values: Tensor  # sum over the rows of the twins' mean
    errors: Tensor | None  # [rows]: mean absolute error of the twins, for the priorities
    choices: Choices  # of the actor; with the graph to its weights, if autograd is used


class ActorStep(NamedTuple):
    """Results of a part for the actor. Sums are weighted likewise."""

    gradients: list[Tensor] | None
    loss: Tensor
    entropy: Tensor  # sum
    excess: Tensor  # sum: of log pi plus the target entropy


def split_transitions(
    batch: Experience, importance_weights: Array | None, noise: Noise, inputs: Inputs, parts: int, device: torch.device
) -> list[Part]:
    """Split a batch into `parts` of equal size (the last one may be smaller)."""
    rows = len(batch.entries)
    shares = np.full(rows, 1.0 / rows, np.float32)
    if importance_weights is not None:
        shares *= importance_weights

    def part_of(part: slice) -> Part:
        def tensor(array: Array) -> Tensor:
            return to_device(array[part], device)

        def both(now: Array, following: Array) -> Tensor:
            return to_device(np.concatenate([now[part], following[part]]), device)

        return Part(
            seen=None,
            now=inputs({name: tensor(array) for name, array in batch.observations.items()}),
            following=inputs({name: tensor(array) for name, array in batch.following.items()}),
            times=1,
            actions=tensor(batch.actions),
            returns=tensor(batch.returns),
            discounts=tensor(batch.discounts),
            weights=tensor(shares),
            allowed=None if batch.allowed is None or batch.masks is None else both(batch.allowed, batch.masks),
            action_noise=None if noise.actions is None else both(*noise.actions),
            dropout=_each(noise.dropout, tensor),
        )

    return [part_of(part) for part in _slices(rows, parts)]


def split_sequences(batch: Sequences, noise: Noise, inputs: Inputs, parts: int, device: torch.device) -> list[Part]:
    """Split a batch of sequences into `parts` of equally many sequences (the last one may have fewer)."""
    times, count = batch.mask.shape
    shares = batch.mask / max(1.0, float(batch.mask.sum()))

    def part_of(part: slice) -> Part:
        def tensor(array: Array) -> Tensor:  # [time, batch, ...] -> [rows, ...]
            some = array[:, part]
            return to_device(some.reshape(-1, *some.shape[2:]), device)

        def both(now: Array, following: Array) -> Tensor:
            return tensor(np.concatenate([now, following]))

        seen = inputs({name: tensor(array) for name, array in batch.observations.items()})
        rows = times * (min(part.stop, count) - part.start)
        return Part(
            seen=seen,
            now=[each[:rows] for each in seen],
            following=[],
            times=times,
            actions=tensor(batch.actions),
            returns=tensor(batch.rewards),
            discounts=tensor(batch.discounts),
            weights=tensor(shares),
            allowed=None if batch.allowed is None else both(batch.allowed[:-1], batch.allowed[1:]),
            action_noise=None if noise.actions is None else both(*noise.actions),
            dropout=_each(noise.dropout, tensor),
        )

    return [part_of(part) for part in _slices(count, parts)]


def _slices(rows: int, parts: int) -> Iterator[slice]:
    size = -(-rows // parts)
    return (slice(first, first + size) for first in range(0, rows, size))


def _each(arrays: Array | None, tensor: Callable[[Array], Tensor]) -> list[Tensor | None]:
    return [None] * 3 if arrays is None else [tensor(array) for array in arrays]
