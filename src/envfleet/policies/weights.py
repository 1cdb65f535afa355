"""Initialisation of weights, and fast access to them.

`layer.weight` goes through the attribute lookup of torch's modules and costs as much as a small product.
`parameters_of` and `buffers_of` return the dicts in which a module stores its tensors. These stay the same objects when
their tensors are replaced, and reading them is cheap.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from envfleet.errors import ResourceError, SettingsError
from envfleet.machine import available_memory

if TYPE_CHECKING:
    from envfleet.policies.protocol import ActingPolicy

__all__ = [
    "HIDDEN_GAIN",
    "POLICY_HEAD_GAIN",
    "RESIDUAL_GAIN",
    "VALUE_HEAD_GAIN",
    "buffers_of",
    "load_weights",
    "orthogonal",
    "parameters_of",
    "refuse_too_large",
    "seeded",
]

# The gains used for published PPO results.
HIDDEN_GAIN = math.sqrt(2.0)  # all hidden layers, tanh and relu alike
RESIDUAL_GAIN = 0.5  # the last layer of a residual branch, whose output is added to its input
POLICY_HEAD_GAIN = 0.01  # the first actions are nearly uniform for every observation
VALUE_HEAD_GAIN = 1.0


def load_weights(policy: ActingPolicy, weights: Mapping[str, Tensor], whose: str) -> None:
    """Load the weights of a policy; raise SettingsError if they do not fit."""
    try:
        policy.load_state_dict(dict(weights))
    except RuntimeError as error:
        raise SettingsError(
            f"the weights of {whose} do not fit: {error}",
            hint="the environment's spaces, the network and its settings must be those of the training",
        ) from None


_BYTES_PER_WEIGHT = 4 * 4  # float32: the weight, its gradient and the two moments of Adam
_building = threading.Lock()  # torch has one generator per process


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Make weights created inside depend only on the seed; torch's global generator is restored afterwards."""
    with _building:
        generator, threads = torch.default_generator, torch.get_num_threads()
        before = generator.get_state()
        try:
            generator.manual_seed(seed)
            torch.set_num_threads(1)  # the QR decomposition of orthogonal weights may depend on the number of threads
            yield
        finally:
            torch.set_num_threads(threads)
            generator.set_state(before)


def refuse_too_large(what: str, weights: int) -> None:
    """Raise ResourceError, before anything is allocated, if training the weights needs more memory than is free."""
    needed, free = weights * _BYTES_PER_WEIGHT, available_memory()
    if needed > free:
        raise ResourceError(
            f"{what} have {weights:,} weights, which take {needed / 2**30:,.1f} GiB while they are trained, but only "
            f"{free / 2**30:.1f} GiB of memory are available",
            hint="use fewer units",
        )


def orthogonal(layer: nn.Linear | nn.Conv2d, gain: float) -> None:
    """Initialise a layer with orthogonal weights of the given gain and zero biases."""
    nn.init.orthogonal_(layer.weight, gain)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def parameters_of(module: nn.Module) -> dict[str, Tensor]:
    """Return the parameters of the module itself (not of its submodules) by name."""
    return cast(dict[str, Tensor], module._parameters)


def buffers_of(module: nn.Module) -> dict[str, Tensor]:
    """Return the buffers of the module itself (not of its submodules) by name."""
    return cast(dict[str, Tensor], module._buffers)
