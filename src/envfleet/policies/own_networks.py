"""Users' own networks: imported by name, built, and tested on two observations before training."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

import envfleet
from envfleet.errors import EnvfleetError, SettingsError
from envfleet.fleet.spaces import Leaf, bounds_of
from envfleet.importing import imported
from envfleet.policies.encoders import Trunk
from envfleet.policies.inputs import Inputs

__all__ = ["ROWS", "dummy_pass", "own_module", "own_trunk", "shape_of"]

ROWS = 2  # of the dummy pass; layers such as batch normalisation reject a single row


def own_trunk(network: str | Callable[..., Any], space: spaces.Space[Any], inputs: Inputs) -> Trunk:
    """Build a trunk from a user's own encoder."""
    module = own_module(network, "network", space)
    features = dummy_pass(module, inputs, f"network {network!r}")
    if not isinstance(features, Tensor) or features.ndim != 2 or len(features) != ROWS:
        raise SettingsError(
            f"network {network!r} gave {shape_of(features)} for {ROWS} observations, expected features ({ROWS}, n)",
            hint="flatten the features: one row per observation",
        )
    return Trunk([module], features.shape[1])


def own_module(given: str | Callable[..., Any], role: str, *spaces_of_it: spaces.Space[Any]) -> nn.Module:
    """Build a module by calling the class or function with the spaces; `role` is the name of the setting."""
    make = imported(given) if isinstance(given, str) else given
    takes = "(observation_space)" if len(spaces_of_it) == 1 else "(observation_space, action_space)"
    with _own_code(f"{role} {given!r}", "while it was built", f"it is called as Class{takes}"):
        module = make(*spaces_of_it)
    if not isinstance(module, nn.Module):
        raise SettingsError(
            f"{role} {given!r} made a {type(module).__name__}, expected a torch.nn.Module",
            hint="derive its class from torch.nn.Module",
        )
    return module


def dummy_pass(module: nn.Module, inputs: Inputs, what: str) -> Any:
    """Return the module's output for `ROWS` observations of zeros, or of the nearest numbers that the space has."""
    prepared = inputs({leaf.name: torch.from_numpy(_nearest_to_zero(leaf)) for leaf in inputs.leaves})[0]
    hint = f"its forward is called with {_shapes_in(prepared)}: a batch of observations and nothing else"
    with torch.no_grad(), _own_code(what, f"for {ROWS} observations", hint):
        return module(prepared)


def _nearest_to_zero(leaf: Leaf) -> np.ndarray[Any, Any]:
    low, high = bounds_of(leaf.space)
    zeros = np.zeros((ROWS, *leaf.shape), leaf.dtype)
    return np.minimum(np.maximum(zeros, low), high).astype(leaf.dtype, copy=False)


@contextmanager
def _own_code(what: str, when: str, hint: str) -> Iterator[None]:
    """Turn any exception of the user's code into a SettingsError that names the line."""
    try:
        yield
    except EnvfleetError:
        raise
    except Exception as error:
        passed_through = tuple(str(Path(str(module.__file__)).parent) for module in (envfleet, torch, importlib))
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if not frame.filename.startswith((*passed_through, "<frozen"))]
        where = f"\n{''.join(traceback.format_list(own[-1:])).rstrip()}" if own else ""
        raise SettingsError(f"{what} raised {type(error).__name__} {when}: {error}{where}", hint=hint) from error


def _shapes_in(prepared: Any) -> str:
    if isinstance(prepared, dict):
        return "{" + ", ".join(f"{name!r}: {_shapes_in(part)}" for name, part in prepared.items()) + "}"
    if isinstance(prepared, tuple):
        return f"({', '.join(map(_shapes_in, prepared))})"
    return f"a tensor {tuple(prepared.shape)}"


def shape_of(value: Any) -> str:
    """Return the shape of a tensor, or the type of any other value, for messages."""
    return str(tuple(value.shape)) if isinstance(value, Tensor) else type(value).__name__
