"""Builds the inputs, networks and distribution that the spaces and settings require."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gymnasium import spaces
from torch import nn

from envfleet.errors import SettingsError
from envfleet.fleet.spaces import Leaf
from envfleet.policies.body import ActorCritic, Body, WholePolicy
from envfleet.policies.distributions import Distribution, Gaussian, build_distribution
from envfleet.policies.encoders import Trunk, build_trunk
from envfleet.policies.inputs import Inputs, JoinedInputs, NestedInputs, checked_leaves, is_image
from envfleet.policies.memory import Memory
from envfleet.policies.own_networks import ROWS, dummy_pass, own_module, own_trunk, shape_of
from envfleet.policies.settings import NETWORKS, PolicySettings

__all__ = ["build_parts"]


def build_parts(
    observation_space: spaces.Space[Any], action_space: spaces.Space[Any], settings: PolicySettings
) -> tuple[Inputs, Body, Distribution]:
    """Build the three parts of a policy: inputs, body and distribution."""
    leaves = checked_leaves(observation_space)
    distribution = build_distribution(action_space, settings.bounds, settings.initial_log_std)
    normalise = settings.normalise_observations
    if settings.policy is not None:
        inputs: Inputs = NestedInputs(observation_space, leaves, normalise=normalise)
        module = own_module(settings.policy, "policy", observation_space, action_space)
        return inputs, _whole_policy(module, settings.policy, inputs, distribution), distribution

    images = [leaf for leaf in leaves if is_image(leaf)]
    shared = settings.shared
    if shared is None:
        shared = bool(images) or settings.memory != "none"
    if settings.network in NETWORKS:
        inputs, trunks = _our_trunks(leaves, images, settings, 1 if shared else 2)
    else:
        inputs = NestedInputs(observation_space, leaves, normalise=normalise)
        trunks = [own_trunk(settings.network, observation_space, inputs) for _ in range(1 if shared else 2)]
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
        images = []  # images are flattened to vectors
    elif network != "auto" and not images:
        raise SettingsError(
            f"network is {network!r}, but the observation has no image: a Box of three dimensions, of uint8, bool "
            "or float",
            hint="use network 'auto' or 'mlp'",
        )
    inputs = JoinedInputs(leaves, images, normalise=settings.normalise_observations)
    trunks = [build_trunk(inputs, images, network, settings.hidden, settings.activation) for _ in range(count)]
    return inputs, trunks


def _whole_policy(
    module: nn.Module, given_as: str | Callable[..., Any], inputs: Inputs, distribution: Distribution
) -> WholePolicy:
    result = dummy_pass(module, inputs, f"policy {given_as!r}")
    given = tuple(result) if isinstance(result, tuple | list) else (result,)
    widths = [distribution.parameter_size]
    if isinstance(distribution, Gaussian):
        widths.append(2 * distribution.parameter_size)  # mean and log_std side by side
    expected = [((ROWS, width), (ROWS,)) for width in widths]
    if tuple(tuple(getattr(part, "shape", ())) for part in given) not in expected:
        choices = " or ".join(str((ROWS, width)) for width in widths)
        raise SettingsError(
            f"the policy gave {', '.join(map(shape_of, given))} for {ROWS} observations, expected a tuple of "
            f"action parameters {choices} and values ({ROWS},)",
            hint="values have one dimension: use .squeeze(-1) on a linear layer's output",
        )
    if isinstance(distribution, Gaussian) and given[0].shape[1] == widths[1]:
        distribution.read_log_std_from_network()
    return WholePolicy(module)
