"""How weights begin, and how they are reached quickly.

`layer.weight` goes through the attribute lookup of torch's modules and costs as much as a small product. The
dicts below are those in which a module keeps its tensors itself: they stay the same objects, whatever tensors
are put in, and reading them costs nothing.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import torch
from torch import Tensor, nn

from envfleet.errors import ResourceError
from envfleet.machine import available_memory

__all__ = [
    "HIDDEN_GAIN",
    "POLICY_HEAD_GAIN",
    "RESIDUAL_GAIN",
    "VALUE_HEAD_GAIN",
    "buffers_of",
    "orthogonal",
    "parameters_of",
    "refuse_too_large",
    "seeded",
]

# The gains that published PPO results were made with.
HIDDEN_GAIN = math.sqrt(2.0)  # all hidden layers, tanh and relu alike
RESIDUAL_GAIN = 0.5  # the last layer of a residual branch, whose output is added to what was there
POLICY_HEAD_GAIN = 0.01  # the first actions are nearly uniform, whatever is seen
VALUE_HEAD_GAIN = 1.0


_BYTES_PER_WEIGHT = 4 * 4  # float32: the weight, its gradient and the two moments of Adam
_building = threading.Lock()  # torch's generator is one for the whole process


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Weights made inside depend on the seed alone; torch's global generator is left as it was."""
    with _building:
        generator, threads = torch.default_generator, torch.get_num_threads()
        before = generator.get_state()
        try:
            generator.manual_seed(seed)
            torch.set_num_threads(1)  # orthogonal weights come from a QR decomposition; threads may change its bits
            yield
        finally:
            torch.set_num_threads(threads)
            generator.set_state(before)


def refuse_too_large(what: str, weights: int) -> None:
    """ResourceError, before anything is allocated, if the machine cannot hold the weights while they are trained."""
    needed, free = weights * _BYTES_PER_WEIGHT, available_memory()
    if needed > free:
        raise ResourceError(
            f"{what} have {weights:,} weights, which take {needed / 2**30:,.1f} GiB while they are trained, but only "
            f"{free / 2**30:.1f} GiB of memory are available",
            hint="use fewer units",
        )


def orthogonal(layer: nn.Linear | nn.Conv2d, gain: float) -> None:
    """Orthogonal weights of the given gain, zero biases."""
    nn.init.orthogonal_(layer.weight, gain)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def parameters_of(module: nn.Module) -> dict[str, Tensor]:
    """The parameters of a module itself (not of its submodules) by name."""
    return cast(dict[str, Tensor], module._parameters)


def buffers_of(module: nn.Module) -> dict[str, Tensor]:
    """The buffers of a module itself (not of its submodules) by name."""
    return cast(dict[str, Tensor], module._buffers)
