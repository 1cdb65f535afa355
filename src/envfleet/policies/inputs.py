"""Preprocessing of observations: vectors are concatenated, numbers converted to float32, categories to one-hot."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from envfleet.errors import SettingsError
from envfleet.fleet.spaces import Leaf, bounds_of, leaves_of, rebuild
from envfleet.policies.normalise import ObservationNormaliser

__all__ = ["Inputs", "JoinedInputs", "NestedInputs", "checked_leaves", "is_image", "scale_of"]


def is_image(leaf: Leaf) -> bool:
    """Whether the leaf is an image or a frame stack: a Box of three dimensions, uint8, bool or float."""
    return isinstance(leaf.space, spaces.Box) and len(leaf.shape) == 3 and leaf.dtype.kind in "fub"


def scale_of(leaf: Leaf) -> float:
    """The factor that brings the bytes of a Box to [0, 1].

    Other numbers are not scaled, unless their upper bound of 255 shows that they hold byte values.
    """
    _, high = bounds_of(leaf.space)
    if leaf.dtype == np.uint8:
        return 1.0 / max(1.0, float(high.max()))
    return 1.0 / 255.0 if np.all(high == 255) else 1.0


def checked_leaves(space: spaces.Space[Any]) -> list[Leaf]:
    """Return the leaves of an observation space; raise SettingsError if a network cannot read one of them."""
    leaves = leaves_of(space)
    for leaf in leaves:
        if not leaf.fixed:
            where = f"at {leaf.name!r} " if leaf.path else ""
            raise SettingsError(
                f"the observation {where}is {leaf.space}, expected Box, Discrete, MultiDiscrete or MultiBinary",
                hint="use a wrapper that turns it into numbers or leaves it out",
            )
        if not all(leaf.shape):
            where = f"at {leaf.name!r} " if leaf.path else ""
            raise SettingsError(
                f"the observation {where}has the shape {leaf.shape}, expected at least one number",
                hint="use a wrapper that leaves it out",
            )
    return leaves


class Inputs(nn.Module):
    """Preprocesses a flat dict `{leaf.name: tensor}`; holds the normalisers of its float vectors."""

    def __init__(self, leaves: list[Leaf], *, normalise: bool) -> None:
        super().__init__()
        self.leaves = leaves
        self._normaliser_of: dict[str, ObservationNormaliser] = {}
        if normalise:
            chosen = [leaf for leaf in leaves if leaf.dtype.kind == "f" and not is_image(leaf)]
            self._normaliser_of = {leaf.name: ObservationNormaliser(leaf.shape) for leaf in chosen}
        # A list, because leaf names may be empty or contain dots, and module names may not.
        self.normalisers = nn.ModuleList(self._normaliser_of.values())

    def forward(self, observations: dict[str, Tensor]) -> list[Any]:
        """Return the inputs of the encoders, in their order."""
        raise NotImplementedError

    def normaliser_of(self, leaf: str) -> ObservationNormaliser | None:
        """Return the normaliser of the leaf of this name, if it has one."""
        return self._normaliser_of.get(leaf)

    def update_normalisers(self, observations: dict[str, Tensor], valid: Tensor | None) -> None:
        """Add observations `[..., *leaf.shape]` to the moments, in the given order; `valid` is `[...]`."""
        for name, normaliser in self._normaliser_of.items():
            shape = tuple(normaliser.mean.shape)
            rows = observations[name].detach().cpu().numpy().reshape(-1, *shape)
            normaliser.update(rows if valid is None else rows[valid.cpu().numpy().reshape(-1)])

    def normaliser_state(self) -> dict[str, dict[str, np.ndarray[Any, Any]]]:
        """Return the moments of every normalised leaf, as plain float64 arrays."""
        return {name: normaliser.moments.state() for name, normaliser in self._normaliser_of.items()}

    def restore_normalisers(self, state: dict[str, dict[str, np.ndarray[Any, Any]]]) -> None:
        """Restore the result of `normaliser_state`."""
        if state.keys() != self._normaliser_of.keys():
            raise SettingsError(
                f"received normaliser statistics of {sorted(state)}, expected those of {sorted(self._normaliser_of)}",
                hint="they belong to another observation space or to other policy settings",
            )
        for name, normaliser in self._normaliser_of.items():
            normaliser.restore(state[name])


class JoinedInputs(Inputs):
    """Concatenates all vector leaves to one tensor [batch, n]; images are passed on unchanged."""

    def __init__(self, leaves: list[Leaf], images: list[Leaf], *, normalise: bool) -> None:
        super().__init__(leaves, normalise=normalise)
        self.image_names = [leaf.name for leaf in images]
        vectors = [leaf for leaf in leaves if leaf.name not in self.image_names]
        readers = [_reader(leaf, self._normaliser_of.get(leaf.name)) for leaf in vectors]
        self.readers = nn.ModuleList(readers)
        self.vector_size = sum(reader.size for reader in readers)
        # Plain attributes: looking up a submodule costs as much as a small tensor operation.
        self._vectors = [(leaf.name, reader.forward) for leaf, reader in zip(vectors, readers, strict=True)]
        ends = np.cumsum([reader.size for reader in readers])
        self._columns = {
            leaf.name: int(end) - reader.size for leaf, reader, end in zip(vectors, readers, ends, strict=True)
        }

    def forward(self, observations: dict[str, Tensor]) -> list[Any]:
        """Return [the concatenated vector, if there is one, then each image]."""
        vectors = [read(observations[name]) for name, read in self._vectors]
        images = [observations[name] for name in self.image_names]
        if len(vectors) > 1:
            return [torch.cat(vectors, dim=1), *images]
        return vectors + images

    def column_of(self, leaf: str) -> int:
        """Return the first column of a vector leaf in the concatenated vector."""
        return self._columns[leaf]


class NestedInputs(Inputs):
    """The observation in the structure of its space, for a user's own network.

    Float leaves are converted to float32 and normalised; all others (integer images, categories) stay as they are.
    """

    def __init__(self, space: spaces.Space[Any], leaves: list[Leaf], *, normalise: bool) -> None:
        super().__init__(leaves, normalise=normalise)
        self.space = space

    def forward(self, observations: dict[str, Tensor]) -> list[Any]:
        """Return [the nested observation]."""
        return [rebuild(self.space, {leaf.path: self._value(leaf, observations[leaf.name]) for leaf in self.leaves})]

    def _value(self, leaf: Leaf, value: Tensor) -> Tensor:
        if leaf.dtype.kind != "f":
            return value
        normaliser = self._normaliser_of.get(leaf.name)
        return value.float() if normaliser is None else normaliser(value.float())


class _Numbers(nn.Module):
    """A Box or MultiBinary as a float32 vector."""

    def __init__(self, leaf: Leaf, normaliser: ObservationNormaliser | None) -> None:
        super().__init__()
        self.size = int(np.prod(leaf.shape))
        self._as_is = leaf.dtype == np.float32
        self._scale = scale_of(leaf) if leaf.dtype == np.uint8 else None
        self._flat = len(leaf.shape) == 1
        self._normalise = None if normaliser is None else normaliser.forward

    def forward(self, values: Tensor) -> Tensor:
        if not self._as_is:
            values = values.float() if self._scale is None else values * self._scale
        if self._normalise is not None:
            values = self._normalise(values)
        return values if self._flat else values.reshape(len(values), self.size)


class _OneHot(nn.Module):
    """A Discrete or MultiDiscrete as concatenated one-hot vectors."""

    shift: Tensor

    def __init__(self, space: spaces.Discrete | spaces.MultiDiscrete) -> None:
        super().__init__()
        sizes = np.atleast_1d(space.n if isinstance(space, spaces.Discrete) else space.nvec).reshape(-1)
        first = np.cumsum(sizes) - sizes  # where the one-hot vector of each category begins
        self.size = int(sizes.sum())
        self._categories = len(sizes)
        shift = torch.from_numpy((first - np.reshape(space.start, -1)).astype(np.int64))
        self.register_buffer("shift", shift, persistent=False)

    def forward(self, values: Tensor) -> Tensor:
        index = values.reshape(len(values), self._categories).long() + self.shift
        return torch.zeros(len(values), self.size, device=values.device).scatter_(1, index, 1.0)


def _reader(leaf: Leaf, normaliser: ObservationNormaliser | None) -> _Numbers | _OneHot:
    if isinstance(leaf.space, spaces.Discrete | spaces.MultiDiscrete):
        return _OneHot(leaf.space)
    return _Numbers(leaf, normaliser)
