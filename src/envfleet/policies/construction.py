"""Which inputs, networks and distribution the spaces and the settings ask for."""

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
from envfleet.fleet.spaces import Leaf
from envfleet.policies.body import ActorCritic, Body, WholePolicy
from envfleet.policies.distributions import Distribution, Gaussian, build_distribution
from envfleet.policies.encoders import Trunk, build_trunk
from envfleet.policies.inputs import Inputs, JoinedInputs, NestedInputs, checked_leaves, is_image
from envfleet.policies.memory import Memory
from envfleet.policies.settings import NETWORKS, PolicySettings

__all__ = ["build_parts"]

_ROWS = 2  # of the dummy pass through a user's own network; layers such as batch normalisation refuse one row


def build_parts(
    observation_space: spaces.Space[Any], action_space: spaces.Space[Any], settings: PolicySettings
) -> tuple[Inputs, Body, Distribution]:
    """The three parts of a policy."""
    leaves = checked_leaves(observation_space)
    distribution = build_distribution(action_space, settings.bounds, settings.initial_log_std)
    normalise = settings.normalise_observations
    if settings.policy is not None:
        inputs: Inputs = NestedInputs(observation_space, leaves, normalise=normalise)
        made = _made(settings.policy, "policy", observation_space, action_space)
        return inputs, _whole_policy(made, settings.policy, inputs, distribution), distribution

    images = [leaf for leaf in leaves if is_image(leaf)]
    shared = settings.shared
    if shared is None:
        shared = bool(images) or settings.memory != "none"
    if settings.network in NETWORKS:
        inputs, trunks = _our_trunks(leaves, images, settings, 1 if shared else 2)
    else:
        inputs = NestedInputs(observation_space, leaves, normalise=normalise)
        trunks = [_user_trunk(settings.network, observation_space, inputs) for _ in range(1 if shared else 2)]
    actor, critic = trunks[0], None if shared else trunks[1]
    memory = None
    if settings.memory != "none":
        memory = Memory(settings.memory, actor.size, settings.memory_size)
    return inputs, ActorCritic(actor, critic, memory, distribution.parameter_size), distribution


def _our_trunks(
    leaves: list[Leaf], images: list[Leaf], settings: PolicySettings, count: int
) -> tuple[JoinedInputs, list[Trunk]]:
    network = str(settings.network)
    if network == "mlp":
        images = []  # they are read as vectors
    elif network != "auto" and not images:
        raise SettingsError(
            f"network is {network!r}, but the observation has no image (a Box of three dimensions, uint8 or float)",
            hint="use network 'auto' or 'mlp'",
        )
    inputs = JoinedInputs(leaves, images, normalise=settings.normalise_observations)
    trunks = [build_trunk(inputs, images, network, settings.hidden, settings.activation) for _ in range(count)]
    return inputs, trunks


def _user_trunk(network: str | Callable[..., Any], space: spaces.Space[Any], inputs: Inputs) -> Trunk:
    module = _made(network, "network", space)
    features = _dummy_pass(module, inputs, f"network {network!r}")
    if not isinstance(features, Tensor) or features.ndim != 2 or len(features) != _ROWS:
        raise SettingsError(
            f"network {network!r} gave {_shape_of(features)} for {_ROWS} observations, expected features ({_ROWS}, n)",
            hint="flatten the features: one row per observation",
        )
    return Trunk([module], features.shape[1])


def _whole_policy(
    module: nn.Module, given_as: str | Callable[..., Any], inputs: Inputs, distribution: Distribution
) -> WholePolicy:
    result = _dummy_pass(module, inputs, f"policy {given_as!r}")
    given = tuple(result) if isinstance(result, tuple | list) else (result,)
    widths = [distribution.parameter_size]
    if isinstance(distribution, Gaussian):
        widths.append(2 * distribution.parameter_size)  # mean and log_std side by side
    expected = [((_ROWS, width), (_ROWS,)) for width in widths]
    if tuple(tuple(getattr(part, "shape", ())) for part in given) not in expected:
        choices = " or ".join(str((_ROWS, width)) for width in widths)
        raise SettingsError(
            f"the policy gave {', '.join(map(_shape_of, given))} for {_ROWS} observations, expected a tuple of "
            f"action parameters {choices} and values ({_ROWS},)",
            hint="values have one dimension: use .squeeze(-1) on a linear layer's output",
        )
    if isinstance(distribution, Gaussian) and given[0].shape[1] == widths[1]:
        distribution.read_log_std_from_network()
    return WholePolicy(module)


def _made(given: str | Callable[..., Any], role: str, *spaces_of_it: spaces.Space[Any]) -> nn.Module:
    make = _imported(given, role) if isinstance(given, str) else given
    takes = "(observation_space)" if len(spaces_of_it) == 1 else "(observation_space, action_space)"
    with _own_code(f"{role} {given!r}", "while it was built", f"it is called as Class{takes}"):
        module = make(*spaces_of_it)
    if not isinstance(module, nn.Module):
        raise SettingsError(
            f"{role} {given!r} made a {type(module).__name__}, expected a torch.nn.Module",
            hint="derive its class from torch.nn.Module",
        )
    return module


def _imported(path: str, role: str) -> Callable[..., Any]:
    name, _, attributes = path.partition(":")
    try:
        with _own_code(f"{role} {path!r}", f"while {name} was imported", "mend the module, or install what it needs"):
            found: Any = importlib.import_module(name)
    except SettingsError as error:
        cause = error.__cause__
        if isinstance(cause, ModuleNotFoundError) and f"{name}.".startswith(f"{cause.name}."):
            raise SettingsError(
                f"{role} is {path!r}, but there is no module {name!r}",
                hint="give it as package.module:Class, and run where it can be imported",
            ) from error
        raise  # the module was found; what it imports was not, or it raised
    for attribute in attributes.split("."):
        if not hasattr(found, attribute):
            raise SettingsError(f"{role} is {path!r}, but {name!r} has no {attributes!r}", hint="check the spelling")
        found = getattr(found, attribute)
    if not callable(found):
        raise SettingsError(f"{role} is {path!r}, which is a {type(found).__name__}, expected a class or function")
    result: Callable[..., Any] = found
    return result


def _dummy_pass(module: nn.Module, inputs: Inputs, what: str) -> Any:
    observations = {leaf.name: torch.from_numpy(np.zeros((_ROWS, *leaf.shape), leaf.dtype)) for leaf in inputs.leaves}
    prepared = inputs(observations)[0]
    hint = f"its forward is called with {_shapes_in(prepared)}: a batch of observations and nothing else"
    with torch.no_grad(), _own_code(what, f"for {_ROWS} observations", hint):
        return module(prepared)


@contextmanager
def _own_code(what: str, when: str, hint: str) -> Iterator[None]:
    """Turns whatever the user's code raises into a SettingsError that says where."""
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


def _shape_of(value: Any) -> str:
    return str(tuple(value.shape)) if isinstance(value, Tensor) else type(value).__name__
