"""Which inputs, networks and distribution the spaces and the settings ask for."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from envfleet.errors import SettingsError
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
        return inputs, _whole_policy(made, inputs, distribution), distribution

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
    features = _dummy_pass(module, inputs)
    if not isinstance(features, Tensor) or features.ndim != 2 or len(features) != _ROWS:
        raise SettingsError(
            f"network {network!r} gave {_shape_of(features)} for {_ROWS} observations, expected features ({_ROWS}, n)",
            hint="flatten the features: one row per observation",
        )
    return Trunk([module], features.shape[1])


def _whole_policy(module: nn.Module, inputs: Inputs, distribution: Distribution) -> WholePolicy:
    result = _dummy_pass(module, inputs)
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
    module = (_imported(given, role) if isinstance(given, str) else given)(*spaces_of_it)
    if not isinstance(module, nn.Module):
        raise SettingsError(
            f"{role} {given!r} made a {type(module).__name__}, expected a torch.nn.Module",
            hint="derive its class from torch.nn.Module",
        )
    return module


def _imported(path: str, role: str) -> Callable[..., Any]:
    name, _, attributes = path.partition(":")
    try:
        found: Any = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name and not name.startswith(f"{error.name}."):
            raise  # the module was found; what it imports was not
        raise SettingsError(
            f"{role} is {path!r}, but there is no module {name!r}",
            hint="give it as package.module:Class, and run where it can be imported",
        ) from error
    for attribute in attributes.split("."):
        if not hasattr(found, attribute):
            raise SettingsError(f"{role} is {path!r}, but {name!r} has no {attributes!r}", hint="check the spelling")
        found = getattr(found, attribute)
    if not callable(found):
        raise SettingsError(f"{role} is {path!r}, which is a {type(found).__name__}, expected a class or function")
    result: Callable[..., Any] = found
    return result


def _dummy_pass(module: nn.Module, inputs: Inputs) -> Any:
    observations = {leaf.name: torch.from_numpy(np.zeros((_ROWS, *leaf.shape), leaf.dtype)) for leaf in inputs.leaves}
    with torch.no_grad():
        return module(inputs(observations)[0])


def _shape_of(value: Any) -> str:
    return str(tuple(value.shape)) if isinstance(value, Tensor) else type(value).__name__
