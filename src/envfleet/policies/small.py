"""Fast acting with small networks, by NumPy.

Acting uses batches of a few rows. For products of that size torch spends most of its time on bookkeeping, and NumPy
needs a quarter of the time. This module covers MLPs on one vector of floats, with or without a GRU, for Discrete and
clipped Box actions and for Q-values. For everything else `small_policy` returns None, and torch is used.

The arrays are views of the policy's weights, so `FlatParameters` must have placed the weights before.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from torch import Tensor, nn

from envfleet.fleet.memory import aligned
from envfleet.policies.body import ActorCritic, Body
from envfleet.policies.distributions import FORBIDDEN, Categorical, Distribution, Gaussian
from envfleet.policies.encoders import plain_layers
from envfleet.policies.inputs import Inputs, JoinedInputs
from envfleet.policies.memory import Memory
from envfleet.policies.normalise import LIMIT, ObservationNormaliser
from envfleet.policies.policy import Policy
from envfleet.policies.q_policy import QPolicy

__all__ = ["SmallActed", "SmallPolicy", "small_policy"]

Array = np.ndarray[Any, Any]
_FLOAT = np.dtype(np.float32)
# NumPy's BLAS uses one thread for products below these sizes, whatever the thread settings: rows x inputs x outputs,
# and inputs x outputs for a single row.
_ONE_THREAD, _ONE_THREAD_SINGLE = 2**18, 2**13


class SmallActed(NamedTuple):
    """Actions for a batch."""

    env_actions: Array  # for the environment
    actions: Array  # as stored
    log_probs: Array | None  # [batch]; None for Q-networks
    values: Array | None  # [batch], if requested


class SmallPolicy(Protocol):
    """Acts for one group; its memory [batch, n] is updated in place."""

    def act(self, observations: Array, memory: Array, noise: Array, mask: Array | None) -> SmallActed: ...


def small_policy(policy: Policy | QPolicy, rows: int, *, with_values: bool) -> SmallPolicy | None:
    """Return a NumPy version of the policy for batches of `rows`; None if torch is faster or required."""
    read = _reader(policy.inputs)
    if read is None:
        return None
    if isinstance(policy, QPolicy):
        # The state value of a dueling network is the same for all actions, so it does not affect the best action.
        heads = policy.plain_heads()
        layers = None if heads is None else plain_layers(heads.trunk, heads.advantages)
        if layers is None or not _fit(layers.linear, rows):
            return None
        return _SmallValues(read, _Network(layers.linear, layers.activation, rows), policy)
    draw = _drawing(policy.distribution, rows)
    body = _small_body(policy.body, rows, with_values=with_values)
    return None if draw is None or body is None else _SmallActor(read, body, draw)


class _Reader:
    """Converts a vector of floats to the network's input."""

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

    def __init__(self, layers: list[nn.Linear], activation: str, rows: int, *, activate_last: bool = False) -> None:
        self._layers = [
            (_view(layer.weight).T, _view(layer.bias), aligned((rows, layer.out_features), _FLOAT)) for layer in layers
        ]
        self._activated = len(layers) - (0 if activate_last else 1)
        self._tanh = activation == "tanh"

    def __call__(self, rows: Array) -> Array:
        """Return the outputs; the next call reuses the array."""
        for depth, (weight, bias, out) in enumerate(self._layers):
            np.matmul(rows, weight, out=out)
            np.add(out, bias, out=out)
            if depth < self._activated:
                if self._tanh:
                    np.tanh(out, out=out)
                else:
                    np.maximum(out, 0.0, out=out)
            rows = out
        return rows


class _SmallGRU:
    """Same as `torch.gru_cell`."""

    def __init__(self, memory: Memory, rows: int) -> None:
        self._units = memory.units
        self._of_input, self._of_state = _view(memory.weight_input).T, _view(memory.weight_state).T
        self._bias_input, self._bias_state = _view(memory.bias_input), _view(memory.bias_state)
        self._projected = aligned((rows, 3 * memory.units), _FLOAT)
        self._pulled = aligned((rows, 3 * memory.units), _FLOAT)

    def __call__(self, features: Array, state: Array) -> Array:
        """Update the state in place and return it."""
        units = self._units
        projected = np.matmul(features, self._of_input, out=self._projected)
        projected += self._bias_input
        pulled = np.matmul(state, self._of_state, out=self._pulled)
        pulled += self._bias_state
        gates = projected[:, : 2 * units]
        gates += pulled[:, : 2 * units]
        gates *= 0.5  # sigmoid(x) = (tanh(x / 2) + 1) / 2
        np.tanh(gates, out=gates)
        gates += 1.0
        gates *= 0.5
        candidate = gates[:, :units] * pulled[:, 2 * units :]
        candidate += projected[:, 2 * units :]
        np.tanh(candidate, out=candidate)
        state -= candidate
        state *= gates[:, units:]
        state += candidate
        return state


class _SmallBody:
    """An actor with optional memory, and its critic if they share a network."""

    def __init__(self, trunk: _Network, memory: _SmallGRU | None, head: _Network, value: _Network | None) -> None:
        self._trunk, self._memory, self._head, self._value = trunk, memory, head, value

    def __call__(self, rows: Array, memory: Array) -> tuple[Array, Array | None]:
        features = self._trunk(rows)
        if self._memory is not None:
            features = self._memory(features, memory)
        return self._head(features), None if self._value is None else self._value(features)[:, 0]


def _small_body(body: Body, rows: int, *, with_values: bool) -> _SmallBody | None:
    if not isinstance(body, ActorCritic) or (body.memory is not None and body.memory.kind != "gru"):
        return None
    if with_values and not body.shared:
        return None
    layers = plain_layers(body.actor)
    if layers is None or not _fit([*layers.linear, body.policy_head, body.value_head], rows):
        return None
    if body.memory is not None and not _fits(body.memory.weight_state.numel(), rows):
        return None
    return _SmallBody(
        _Network(layers.linear, layers.activation, rows, activate_last=True),
        None if body.memory is None else _SmallGRU(body.memory, rows),
        _Network([body.policy_head], "", rows),
        _Network([body.value_head], "", rows) if with_values else None,
    )


def _fit(layers: list[nn.Linear], rows: int) -> bool:
    return all(_fits(layer.weight.numel(), rows) for layer in layers)


def _fits(weights: int, rows: int) -> bool:
    return rows * weights < _ONE_THREAD and (rows > 1 or weights < _ONE_THREAD_SINGLE)


class _SmallActor:
    """An actor and its distribution."""

    def __init__(self, read: _Reader, body: _SmallBody, draw: _Drawing) -> None:
        self._read, self._body, self._draw = read, body, draw

    def act(self, observations: Array, memory: Array, noise: Array, mask: Array | None) -> SmallActed:
        parameters, values = self._body(self._read(observations), memory)
        return SmallActed(*self._draw(parameters, noise, mask), values)


class _Drawing(Protocol):
    """Returns actions for the environment, actions to store and their log-probabilities."""

    def __call__(self, parameters: Array, noise: Array, mask: Array | None) -> tuple[Array, Array, Array]: ...


def _drawing(distribution: Distribution, rows: int) -> _Drawing | None:
    if isinstance(distribution, Categorical):
        return _SmallCategorical(distribution.start, rows)
    if isinstance(distribution, Gaussian) and distribution.log_std is not None and distribution.clips:
        return _SmallGaussian(distribution, distribution.log_std)
    return None


class _SmallCategorical:
    """Same as `Categorical.sample`."""

    def __init__(self, start: int, rows: int) -> None:
        self._start, self._rows = start, np.arange(rows)

    def __call__(self, parameters: Array, noise: Array, mask: Array | None) -> tuple[Array, Array, Array]:
        logits = parameters if mask is None else _forbid(parameters, mask)
        chosen = (logits + noise).argmax(1)
        logits = logits - np.maximum.reduce(logits, axis=1, keepdims=True)
        log_probs = logits[self._rows, chosen] - np.log(np.add.reduce(np.exp(logits), axis=1))
        return chosen + self._start if self._start else chosen, chosen, log_probs


class _SmallGaussian:
    """Same as `Gaussian.sample`, with one standard deviation for all observations and clipped actions."""

    def __init__(self, distribution: Gaussian, log_std: Tensor) -> None:
        self._log_std = _view(log_std)
        self._low, self._high = distribution.low.numpy(), distribution.high.numpy()
        self._constant = np.float32(distribution.half_log_2pi)
        self._shape = distribution.action_shape
        self._whole = self._low.dtype.kind != "f"

    def __call__(self, parameters: Array, noise: Array, mask: Array | None) -> tuple[Array, Array, Array]:
        std = np.exp(self._log_std)
        drawn = parameters + std * noise
        distance = (drawn - parameters) / std  # from the stored action, as the learner computes it
        distance *= distance
        distance *= 0.5
        distance += self._log_std
        log_probs = -self._constant - np.add.reduce(distance, axis=1)
        actions = drawn.reshape(-1, *self._shape)
        sent = np.rint(actions) if self._whole else actions
        sent = np.minimum(np.maximum(sent.astype(self._low.dtype, copy=False), self._low), self._high)
        return sent, actions, log_probs


class _SmallValues:
    """Same as `QPolicy.act`, without noisy heads."""

    def __init__(self, read: _Reader, advantages: _Network, policy: QPolicy) -> None:
        self._read, self._advantages = read, advantages
        self._epsilon = _view(policy.epsilon)
        self._actions, self._start = policy.actions, policy.start

    def act(self, observations: Array, memory: Array, noise: Array, mask: Array | None) -> SmallActed:
        values, anywhere = self._advantages(self._read(observations)), noise[:, 1 : 1 + self._actions]
        if mask is not None:
            values, anywhere = _forbid(values, mask), _forbid(anywhere, mask)
        chosen = np.where(noise[:, 0] < self._epsilon, anywhere.argmax(1), values.argmax(1))
        return SmallActed(chosen + self._start if self._start else chosen, chosen, None, None)


def _forbid(values: Array, mask: Array) -> Array:
    """Set forbidden values to -1e9; a row that forbids everything allows everything."""
    return np.where(mask | ~mask.any(1, keepdims=True), values, np.float32(FORBIDDEN))


def _view(tensor: Tensor) -> Array:
    view: Array = tensor.detach().numpy()
    return view
