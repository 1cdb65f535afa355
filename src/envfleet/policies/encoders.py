"""Networks that turn observations into features [batch, n]."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from envfleet.errors import SettingsError
from envfleet.fleet.spaces import Leaf
from envfleet.policies.inputs import JoinedInputs, scale_of
from envfleet.policies.products import linear
from envfleet.policies.weights import HIDDEN_GAIN, RESIDUAL_GAIN, orthogonal, parameters_of, refuse_too_large

__all__ = [
    "MLP",
    "GridCNN",
    "ImpalaCNN",
    "NatureCNN",
    "Trunk",
    "build_trunk",
    "image_encoder",
    "plain_layers",
]

NATURE_LEAST = 36  # pixels; below that the third convolution of the Nature CNN has no input left
_CACHED = 2**21  # numbers in the output of a layer, 8 MB, that the caches of most processors hold


class MLP(nn.Module):
    """Fully connected hidden layers, each with an activation."""

    def __init__(self, inputs: int, hidden: tuple[int, ...], activation: str) -> None:
        super().__init__()
        sizes = (inputs, *hidden)
        self.size, self.activation = sizes[-1], activation
        refuse_too_large(f"hidden layers of {_units(hidden)}", sum((n + 1) * m for n, m in pairwise(sizes)))
        self.layers = nn.ModuleList(nn.Linear(n, m) for n, m in zip(sizes[:-1], hidden, strict=True))
        for layer in self.layers:
            assert isinstance(layer, nn.Linear)
            orthogonal(layer, HIDDEN_GAIN)
        self._weights = [parameters_of(layer) for layer in self.layers]
        self._activate: Callable[[Tensor], Tensor] = torch.tanh_ if activation == "tanh" else torch.relu_

    def forward(self, vector: Tensor) -> Tensor:
        activate = self._activate
        for layer in self._weights:
            vector = activate(linear(vector, layer["weight"], layer["bias"]))
        return vector


def _units(hidden: tuple[int, ...]) -> str:
    return f"{' and '.join(map(str, hidden))} units"


class _ImageEncoder(nn.Module):
    """Convolutions over one image leaf, then one linear layer with relu.

    Images are [height, width, channels] or [channels, height, width], as are frame stacks: the smaller of the first
    and the last dimension is the channels.

    `rows_at_once` is the number of images for one pass on a CPU: more would not fit into the processor's caches.
    """

    size: int

    def __init__(self, leaf: Leaf) -> None:
        super().__init__()
        self._channels_last = _channels_last(leaf)
        self.channels, self.height, self.width = leaf.shape
        if self._channels_last:
            self.height, self.width, self.channels = leaf.shape
        self._scale = scale_of(leaf)
        self.convolutions = self._build_convolutions()
        self._initialise_convolutions()
        images, largest = torch.zeros(1, self.channels, self.height, self.width), 0
        with torch.no_grad():
            for layer in self.convolutions:
                images = layer(images)
                largest = max(largest, images.numel())
        self.rows_at_once = max(1, _CACHED // largest)
        self.linear = nn.Linear(images.numel(), self.size)
        orthogonal(self.linear, HIDDEN_GAIN)

    def _build_convolutions(self) -> nn.Sequential:
        raise NotImplementedError

    def _initialise_convolutions(self) -> None:
        for layer in self.convolutions.modules():
            if isinstance(layer, nn.Conv2d):
                orthogonal(layer, HIDDEN_GAIN)

    def forward(self, images: Tensor) -> Tensor:
        # Convolutions run up to twice as fast in torch's channels_last format. A contiguous batch of
        # [height, width, channels] is already in that format, once its dimensions are permuted to torch's order.
        if self._channels_last:
            images = images.permute(0, 3, 1, 2)
        else:
            images = images.contiguous(memory_format=torch.channels_last)
        if images.dtype != torch.float32:
            images = images.float().mul_(self._scale)  # twice as fast as multiplying bytes; keeps the memory format
        elif self._scale != 1.0:
            images = images * self._scale
        return torch.relu_(linear(self.convolutions(images).flatten(1), self.linear.weight, self.linear.bias))


class NatureCNN(_ImageEncoder):
    """The network of Mnih et al. (2015): three convolutions and 512 features."""

    size = 512

    def _build_convolutions(self) -> nn.Sequential:
        if min(self.height, self.width) < NATURE_LEAST:
            raise SettingsError(
                f"the network 'nature' got images of {self.height}x{self.width}, "
                f"expected at least {NATURE_LEAST}x{NATURE_LEAST}",
                hint="use network 'auto', which has small kernels for small images, or 'impala'",
            )
        return nn.Sequential(
            nn.Conv2d(self.channels, 32, 8, stride=4),
            nn.ReLU(inplace=True),
            nn.Conv2d(32, 64, 4, stride=2),
            nn.ReLU(inplace=True),
            nn.Conv2d(64, 64, 3),
            nn.ReLU(inplace=True),
        )


class GridCNN(_ImageEncoder):
    """Small kernels for small images, such as the 10x10 grids of MinAtar: two convolutions and 256 features."""

    size = 256

    def _build_convolutions(self) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(self.channels, 16, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.ReLU(inplace=True),
        )


class ImpalaCNN(_ImageEncoder):
    """The residual network of Espeholt et al. (2018) with 16, 32 and 32 channels and 256 features."""

    size = 256

    def _build_convolutions(self) -> nn.Sequential:
        parts: list[nn.Module] = []
        channels = self.channels
        for depth in (16, 32, 32):
            parts += [
                nn.Conv2d(channels, depth, 3, padding=1),
                nn.MaxPool2d(3, stride=2, padding=1),
                _Residual(depth),
                _Residual(depth),
            ]
            channels = depth
        return nn.Sequential(*parts, nn.ReLU(inplace=True))

    def _initialise_convolutions(self) -> None:
        """Use gains that keep features near 1; with sqrt(2) everywhere the residual sums grow to ten times that."""
        for layer in self.convolutions:
            if isinstance(layer, nn.Conv2d):
                orthogonal(layer, 1.0)  # its input has not passed a relu
            elif isinstance(layer, _Residual):
                orthogonal(layer.first, HIDDEN_GAIN)
                orthogonal(layer.second, RESIDUAL_GAIN)


class _Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        inner: Tensor = self.second(torch.relu_(self.first(torch.relu(images))))
        return images + inner


def image_encoder(network: str, leaf: Leaf) -> _ImageEncoder:
    """Build the encoder of an image leaf; 'auto' uses small kernels for images that are too small for 'nature'."""
    if network == "impala":
        return ImpalaCNN(leaf)
    sides = leaf.shape[:2] if _channels_last(leaf) else leaf.shape[1:]
    if network == "auto" and min(sides) < NATURE_LEAST:
        return GridCNN(leaf)
    return NatureCNN(leaf)


def _channels_last(leaf: Leaf) -> bool:
    return leaf.shape[2] <= leaf.shape[0]


class Trunk(nn.Module):
    """One encoder per part of the preprocessed observation; their features are concatenated.

    `rows_at_once` is that of the encoder with the largest images. It is None without images, and with a user's own
    encoder, which may compute something from the whole batch.
    """

    def __init__(self, encoders: list[nn.Module], size: int) -> None:
        super().__init__()
        self.encoders = nn.ModuleList(encoders)
        self.size = size
        ours = (MLP, _ImageEncoder)  # a user's own module is called, not its forward, so that its hooks run
        of_images = [encoder.rows_at_once for encoder in encoders if isinstance(encoder, _ImageEncoder)]
        known = all(isinstance(encoder, ours) for encoder in encoders)
        self.rows_at_once: int | None = min(of_images, default=None) if known else None
        self._encode = [encoder.forward if isinstance(encoder, ours) else encoder for encoder in encoders]

    def forward(self, parts: list[Any]) -> Tensor:
        encode = self._encode
        if len(encode) == 1:
            features: Tensor = encode[0](parts[0])
            return features
        return torch.cat([run(part) for run, part in zip(encode, parts, strict=True)], dim=1)


def build_trunk(
    inputs: JoinedInputs, images: list[Leaf], network: str, hidden: tuple[int, ...], activation: str
) -> Trunk:
    """Build an MLP for the concatenated vector, if there is one, and a CNN for each image."""
    encoders: list[MLP | _ImageEncoder] = []
    if inputs.vector_size:
        encoders.append(MLP(inputs.vector_size, hidden, activation))
    encoders += [image_encoder(network, leaf) for leaf in images]
    return Trunk(list(encoders), sum(encoder.size for encoder in encoders))


class PlainLayers(NamedTuple):
    """Linear layers and the activation between them."""

    linear: list[nn.Linear]
    activation: str


def plain_layers(trunk: nn.Module, *heads: nn.Linear) -> PlainLayers | None:
    """Return the layers of an MLP followed by `heads`; None if the trunk is not a single MLP."""
    encoders = list(trunk.encoders) if isinstance(trunk, Trunk) else []
    if len(encoders) != 1 or not isinstance(encoders[0], MLP):
        return None
    hidden = [layer for layer in encoders[0].layers if isinstance(layer, nn.Linear)]
    return PlainLayers([*hidden, *heads], encoders[0].activation)
