"""An actor in NumPy: an MLP on one vector, with or without a GRU, for Discrete and clipped Box actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from envfleet.policies.body import ActorCritic, Body
from envfleet.policies.distributions import Distribution, NumpySampler
from envfleet.policies.encoders import plain_layers
from envfleet.policies.inputs import Inputs
from envfleet.policies.numpy_memory import NumpyGRU
from envfleet.policies.numpy_networks import NumpyNetwork, VectorReader, fit, vector_reader
from envfleet.policies.protocol import NumpyActed

__all__ = ["NumpyActor", "numpy_actor"]

Array = np.ndarray[Any, Any]


def numpy_actor(
    inputs: Inputs, body: Body, distribution: Distribution, rows: int, *, with_values: bool
) -> NumpyActor | None:
    """Return a NumPy version of an actor-critic policy; None if torch is faster or required."""
    read, sample = vector_reader(inputs), distribution.numpy_sampler(rows)
    networks = _numpy_body(body, rows, with_values=with_values)
    if read is None or sample is None or networks is None:
        return None
    return NumpyActor(read, networks, sample)


class NumpyActor:
    """Implements `NumpyPolicy`."""

    def __init__(self, read: VectorReader, body: _NumpyBody, sample: NumpySampler) -> None:
        self._read, self._body, self._sample = read, body, sample

    def refresh(self) -> None:
        """Read the weights again after they changed."""
        self._body.refresh()

    def act(self, observations: Mapping[str, Array], memory: Array, noise: Array, mask: Array | None) -> NumpyActed:
        parameters, values = self._body(self._read(observations), memory)
        env_actions, actions, log_probs = self._sample(parameters, noise, mask)
        return NumpyActed(env_actions, actions, (log_probs,) if values is None else (log_probs, values))


class _NumpyBody:
    """An actor with optional memory, and its critic if they share a network."""

    def __init__(
        self, trunk: NumpyNetwork, memory: NumpyGRU | None, head: NumpyNetwork, value: NumpyNetwork | None
    ) -> None:
        self._trunk, self._memory, self._head, self._value = trunk, memory, head, value

    def refresh(self) -> None:
        """Read the weights again after they changed."""
        if self._memory is not None:
            self._memory.refresh()

    def __call__(self, rows: Array, memory: Array) -> tuple[Array, Array | None]:
        features = self._trunk(rows)
        if self._memory is not None:
            features = self._memory(features, memory)
        return self._head(features), None if self._value is None else self._value(features)[:, 0]


def _numpy_body(body: Body, rows: int, *, with_values: bool) -> _NumpyBody | None:
    if not isinstance(body, ActorCritic) or (body.memory is not None and body.memory.kind != "gru"):
        return None
    layers = plain_layers(body.actor)
    if layers is None or not fit([*layers.linear, body.policy_head, body.value_head], rows):
        return None
    return _NumpyBody(
        NumpyNetwork(layers.linear, layers.activation, rows, activate_last=True),
        None if body.memory is None else NumpyGRU(body.memory, rows),
        NumpyNetwork([body.policy_head], "", rows),
        NumpyNetwork([body.value_head], "", rows) if with_values else None,
    )
