"""Small networks by NumPy, for acting.

Whoever acts decides for a handful of rows at a time. For products of that size torch spends most of its time on
bookkeeping, and NumPy needs a quarter of it. What is covered here are MLPs on one vector of floats, for Discrete
and clipped Box actions and for values of actions; `small_policy` gives None for everything else, and torch acts.

The arrays are views of the policy's weights, so those must have found their place before (`FlatParameters`).
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from torch import Tensor, nn

from envfleet.fleet.memory import aligned
from envfleet.policies.body import ActorCritic
from envfleet.policies.distributions import FORBIDDEN, Categorical, Gaussian
from envfleet.policies.encoders import plain_layers
from envfleet.policies.inputs import Inputs, JoinedInputs
from envfleet.policies.normalise import LIMIT, ObservationNormaliser
from envfleet.policies.policy import Policy
from envfleet.policies.q_policy import QPolicy

__all__ = ["SmallActed", "SmallPolicy", "small_policy"]

Array = np.ndarray[Any, Any]
# Below these sizes of a product NumPy's library computes it with one thread, whatever the process is set to: as
# rows x inputs x outputs, and for a single row as inputs x outputs.
_ONE_THREAD, _ONE_THREAD_SINGLE = 2**18, 2**13


class SmallActed(NamedTuple):
    """What was decided for a batch."""

    env_actions: Array  # as the environment gets them
    actions: Array  # as they are stored
    log_probs: Array | None  # [batch], of a policy that has them


class SmallPolicy(Protocol):
    """Decides for one group."""

    def act(self, observations: Array, noise: Array, mask: Array | None) -> SmallActed: ...


def small_policy(policy: Policy | QPolicy, rows: int) -> SmallPolicy | None:
    """The policy for batches of `rows`, by NumPy; None where torch does it better, or alone can."""
    read = _reader(policy.inputs)
    if read is None:
        return None
    if isinstance(policy, QPolicy):
        # A dueling network's value of the state is the same for all actions, so it does not change which is the best.
        head = policy.plain_head()
        values = None if head is None else _network(*head, rows)
        return None if values is None else _SmallValues(read, values, policy)
    body, distribution = policy.body, policy.distribution
    if not isinstance(body, ActorCritic) or body.memory is not None or body.shared:
        return None
    network = _network(body.actor, body.policy_head, rows)
    if network is None:
        return None
    if isinstance(distribution, Categorical):
        return _SmallCategorical(read, network, distribution.start, rows)
    if isinstance(distribution, Gaussian) and distribution.log_std is not None and distribution.clips:
        return _SmallGaussian(read, network, distribution)
    return None


class _Reader:
    """What the network sees of a vector of floats."""

    def __init__(self, normaliser: ObservationNormaliser | None) -> None:
        self._scale = None if normaliser is None else (_view(normaliser.mean), _view(normaliser.inverse_std))

    def __call__(self, observations: Array) -> Array:
        if self._scale is None:
            return observations.astype(np.float32, copy=False)
        seen = observations.astype(np.float32)
        mean, inverse_std = self._scale
        seen -= mean
        seen *= inverse_std
        return np.minimum(np.maximum(seen, -LIMIT, out=seen), LIMIT, out=seen)


def _reader(inputs: Inputs) -> _Reader | None:
    if not isinstance(inputs, JoinedInputs) or len(inputs.leaves) != 1:
        return None
    (leaf,) = inputs.leaves
    if leaf.dtype.kind != "f" or len(leaf.shape) != 1:
        return None
    return _Reader(inputs.normaliser_of(leaf))


class _Network:
    """Linear layers with an activation between them, over a few rows."""

    def __init__(self, layers: list[nn.Linear], activation: str, rows: int) -> None:
        self._layers = [
            (_view(layer.weight).T, _view(layer.bias), aligned((rows, layer.out_features), np.dtype(np.float32)))
            for layer in layers
        ]
        self._tanh = activation == "tanh"

    def __call__(self, rows: Array) -> Array:
        """The outputs; the array is used again by the next call."""
        last = len(self._layers) - 1
        for depth, (weight, bias, out) in enumerate(self._layers):
            np.matmul(rows, weight, out=out)
            np.add(out, bias, out=out)
            if depth < last:
                if self._tanh:
                    np.tanh(out, out=out)
                else:
                    np.maximum(out, 0.0, out=out)
            rows = out
        return rows


def _network(trunk: nn.Module, head: nn.Linear, rows: int) -> _Network | None:
    found = plain_layers(trunk, head)
    if found is None:
        return None
    layers, activation = found
    largest = max(layer.in_features * layer.out_features for layer in layers)
    if rows * largest >= _ONE_THREAD or (rows == 1 and largest >= _ONE_THREAD_SINGLE):
        return None
    return _Network(layers, activation, rows)


class _SmallCategorical:
    """As `Categorical.sample`."""

    def __init__(self, read: _Reader, network: _Network, start: int, rows: int) -> None:
        self._read, self._network, self._start = read, network, start
        self._rows = np.arange(rows)

    def act(self, observations: Array, noise: Array, mask: Array | None) -> SmallActed:
        logits = self._network(self._read(observations))
        if mask is not None:
            logits = _forbid(logits, mask)
        chosen = (logits + noise).argmax(1)
        logits = logits - np.maximum.reduce(logits, axis=1, keepdims=True)
        log_probs = logits[self._rows, chosen] - np.log(np.add.reduce(np.exp(logits), axis=1))
        return SmallActed(chosen + self._start if self._start else chosen, chosen, log_probs)


class _SmallGaussian:
    """As `Gaussian.sample`, with one standard deviation for all observations and actions clipped."""

    def __init__(self, read: _Reader, network: _Network, distribution: Gaussian) -> None:
        assert distribution.log_std is not None
        self._read, self._network = read, network
        self._log_std = _view(distribution.log_std)
        self._low, self._high = distribution.low.numpy(), distribution.high.numpy()
        self._constant = np.float32(distribution.half_log_2pi)
        self._shape = distribution.action_shape
        self._whole = distribution.low.numpy().dtype.kind != "f"

    def act(self, observations: Array, noise: Array, mask: Array | None) -> SmallActed:
        mean = self._network(self._read(observations))
        std = np.exp(self._log_std)
        drawn = mean + std * noise
        distance = (drawn - mean) / std  # from the stored action, as the learner computes it
        distance *= distance
        distance *= 0.5
        distance += self._log_std
        log_probs = -self._constant - np.add.reduce(distance, axis=1)
        actions = drawn.reshape(-1, *self._shape)
        sent = np.rint(actions) if self._whole else actions
        sent = np.minimum(np.maximum(sent.astype(self._low.dtype, copy=False), self._low), self._high)
        return SmallActed(sent, actions, log_probs)


class _SmallValues:
    """As `QPolicy.act`, without noise in the weights."""

    def __init__(self, read: _Reader, advantages: _Network, policy: QPolicy) -> None:
        self._read, self._advantages = read, advantages
        self._epsilon = _view(policy.epsilon)
        self._actions, self._start = policy.actions, policy.start

    def act(self, observations: Array, noise: Array, mask: Array | None) -> SmallActed:
        values, anywhere = self._advantages(self._read(observations)), noise[:, 1 : 1 + self._actions]
        if mask is not None:
            values, anywhere = _forbid(values, mask), _forbid(anywhere, mask)
        chosen = np.where(noise[:, 0] < self._epsilon, anywhere.argmax(1), values.argmax(1))
        return SmallActed(chosen + self._start if self._start else chosen, chosen, None)


def _forbid(values: Array, mask: Array) -> Array:
    """A row that forbids everything allows everything."""
    return np.where(mask | ~mask.any(1, keepdims=True), values, np.float32(FORBIDDEN))


def _view(tensor: Tensor) -> Array:
    view: Array = tensor.detach().numpy()
    return view
