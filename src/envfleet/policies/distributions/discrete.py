"""Distributions over choices and switches: Discrete, MultiDiscrete and MultiBinary actions, with action masks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor
from torch.nn import functional

from envfleet.policies.distributions.base import Distribution, NumpySampler, Score, torch_dtype

__all__ = ["Bernoulli", "Categorical", "MultiCategorical", "forbid", "forbid_in_numpy"]

Array = np.ndarray[Any, Any]
FORBIDDEN = -1e9
_TINY = np.finfo(np.float32).tiny


class Categorical(Distribution):
    """One of n choices (Discrete)."""

    def __init__(self, space: spaces.Discrete) -> None:
        super().__init__()
        self.parameter_size = self.noise_size = self.mask_size = int(space.n)
        self.action_shape, self.action_dtype = (), np.dtype(np.int64)
        self.start = int(space.start)
        self._env_dtype = torch_dtype(space.dtype)

    def draw_noise(self, generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return _gumbel(generator, (*shape, self.noise_size))

    def sample(self, parameters: Tensor, noise: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        if mask is not None:
            parameters = forbid(parameters, mask)
        chosen = (parameters + noise).argmax(1, True)
        log_probs = torch.log_softmax(parameters, 1).gather(1, chosen)
        return chosen.squeeze(1), log_probs.squeeze(1)

    def numpy_sampler(self, rows: int) -> NumpySampler:
        return _NumpyCategorical(self.start, rows)

    def mode(self, parameters: Tensor, mask: Tensor | None) -> Tensor:
        return (parameters if mask is None else forbid(parameters, mask)).argmax(1)

    def evaluate(self, parameters: Tensor, actions: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        if mask is not None:
            parameters = forbid(parameters, mask)
        log_all = torch.log_softmax(parameters, 1)
        log_probs = log_all.gather(1, actions.unsqueeze(1)).squeeze(1)
        return log_probs, -(log_all.exp() * log_all).sum(1)

    def score(self, parameters: Tensor, actions: Tensor, mask: Tensor | None) -> Score:
        if mask is not None:
            parameters = forbid(parameters, mask)
        log_all = torch.log_softmax(parameters, 1)
        probs, chosen = log_all.exp(), actions.unsqueeze(1)
        entropy = (probs * log_all).sum(1).neg_()

        def vjp(log_probs_gradient: Tensor, entropy_gradient: Tensor | None) -> Tensor:
            # d log p(a) / d logit = [is a] - p;  d H / d logit = -p (log p + H)
            upstream = log_probs_gradient.unsqueeze(1)
            gradient = (probs * -upstream).scatter_add_(1, chosen, upstream)
            if entropy_gradient is not None:
                gradient -= probs * (log_all + entropy.unsqueeze(1)) * entropy_gradient.unsqueeze(1)
            # A forbidden logit was replaced by a constant: its gradient is zero.
            return gradient if mask is None else gradient.masked_fill_(parameters == FORBIDDEN, 0.0)

        return Score(log_all.gather(1, chosen).squeeze(1), entropy, vjp)

    def to_env(self, actions: Tensor) -> Tensor:
        return (actions + self.start if self.start else actions).to(self._env_dtype)


class _NumpyCategorical:
    """Same as `Categorical.sample`."""

    def __init__(self, start: int, rows: int) -> None:
        self._start, self._rows = start, np.arange(rows)

    def __call__(self, parameters: Array, noise: Array, mask: Array | None) -> tuple[Array, Array, Array]:
        logits = parameters if mask is None else forbid_in_numpy(parameters, mask)
        chosen = (logits + noise).argmax(1)
        logits = logits - np.maximum.reduce(logits, axis=1, keepdims=True)
        log_probs = logits[self._rows, chosen] - np.log(np.add.reduce(np.exp(logits), axis=1))
        return chosen + self._start if self._start else chosen, chosen, log_probs


class MultiCategorical(Distribution):
    """Several independent choices (MultiDiscrete); their logits are concatenated."""

    slots: Tensor
    real: Tensor
    padding: Tensor
    start: Tensor

    def __init__(self, space: spaces.MultiDiscrete) -> None:
        super().__init__()
        sizes = np.asarray(space.nvec).reshape(-1).astype(np.int64)
        self.parameter_size = self.mask_size = int(sizes.sum())
        self.action_shape, self.action_dtype = tuple(space.nvec.shape), np.dtype(np.int64)
        self._env_dtype = torch_dtype(space.dtype)
        # Choices of unequal size are padded to the longest; the padding is always forbidden.
        self._shape = (len(sizes), int(sizes.max()))
        self.noise_size = len(sizes) * int(sizes.max())
        column = np.arange(sizes.max())
        real = column < sizes[:, None]
        slots = np.where(real, (np.cumsum(sizes) - sizes)[:, None] + column, 0)
        self._even = bool(real.all())
        self.register_buffer("slots", torch.from_numpy(slots.reshape(-1)), persistent=False)
        self.register_buffer("real", torch.from_numpy(real), persistent=False)
        padding = torch.from_numpy(np.where(real, 0.0, FORBIDDEN).astype(np.float32))
        self.register_buffer("padding", padding, persistent=False)
        self.register_buffer("start", torch.from_numpy(np.array(space.start, np.int64)), persistent=False)

    def draw_noise(self, generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Sample Gumbel noise for rows of equal length; the noise of the padding is never used."""
        return _gumbel(generator, (*shape, self.noise_size))

    def _rows(self, logits: Tensor) -> Tensor:
        """Reshape flat logits [batch, sum] to [batch, choices, longest]."""
        if not self._even:
            return logits.index_select(1, self.slots).view(-1, *self._shape)
        return logits.view(-1, *self._shape)

    def _logits(self, parameters: Tensor, mask: Tensor | None) -> Tensor:
        rows = self._rows(parameters)
        if mask is not None:
            allowed = self._rows(mask.bool()) & self.real
            rows = torch.where(allowed | ~allowed.any(2, keepdim=True), rows, FORBIDDEN)
        return rows if self._even else rows + self.padding

    def sample(self, parameters: Tensor, noise: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        logits = self._logits(parameters, mask)
        chosen = (logits + noise.view(-1, *self._shape)).argmax(2, True)
        log_probs = torch.log_softmax(logits, 2).gather(2, chosen).sum((1, 2))
        return chosen.view(-1, *self.action_shape), log_probs

    def mode(self, parameters: Tensor, mask: Tensor | None) -> Tensor:
        return self._logits(parameters, mask).argmax(2).view(-1, *self.action_shape)

    def evaluate(self, parameters: Tensor, actions: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        log_all = torch.log_softmax(self._logits(parameters, mask), 2)
        log_probs = log_all.gather(2, actions.reshape(len(actions), -1, 1)).sum((1, 2))
        return log_probs, -(log_all.exp() * log_all).sum((1, 2))

    def to_env(self, actions: Tensor) -> Tensor:
        return (actions + self.start).to(self._env_dtype)


class Bernoulli(Distribution):
    """Independent switches (MultiBinary); a mask has one flag per switch, and a forbidden switch stays off."""

    def __init__(self, space: spaces.MultiBinary) -> None:
        super().__init__()
        self.action_shape, self.action_dtype = tuple(space.shape), np.dtype(np.int8)
        self.parameter_size = self.noise_size = self.mask_size = math.prod(self.action_shape)

    def draw_noise(self, generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Sample logistic noise: logits + noise is above 0 with probability sigmoid(logits)."""
        uniform = np.maximum(generator.random((*shape, self.noise_size), np.float32), _TINY)
        return np.log(uniform) - np.log1p(-uniform)

    def sample(self, parameters: Tensor, noise: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        logits = self._logits(parameters, mask)
        on = (logits + noise) > 0.0
        actions = on.view(-1, *self.action_shape).to(torch.int8)
        return actions, _log_switches(logits, on)

    def mode(self, parameters: Tensor, mask: Tensor | None) -> Tensor:
        return (self._logits(parameters, mask) > 0.0).view(-1, *self.action_shape).to(torch.int8)

    def evaluate(self, parameters: Tensor, actions: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        logits, on = self._logits(parameters, mask), actions.reshape(len(actions), -1) > 0
        entropy = functional.softplus(logits) - logits * torch.sigmoid(logits)
        return _log_switches(logits, on), entropy.sum(1)

    @staticmethod
    def _logits(parameters: Tensor, mask: Tensor | None) -> Tensor:
        return parameters if mask is None else torch.where(mask.bool(), parameters, FORBIDDEN)

    def to_env(self, actions: Tensor) -> Tensor:
        return actions


def _gumbel(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Gumbel noise: argmax(logits + noise) samples with the probabilities softmax(logits)."""
    uniform = np.maximum(generator.random(shape, np.float32), _TINY)  # a sample can be 0, never 1
    return -np.log(-np.log(uniform))


def forbid(logits: Tensor, mask: Tensor) -> Tensor:
    """Set the logits (or Q-values) of forbidden actions to -1e9."""
    allowed = mask.bool()
    return torch.where(allowed | ~allowed.any(1, keepdim=True), logits, FORBIDDEN)


def forbid_in_numpy(values: Array, mask: Array) -> Array:
    """Same as `forbid`."""
    return np.where(mask | ~mask.any(1, keepdims=True), values, np.float32(FORBIDDEN))


def _log_switches(logits: Tensor, on: Tensor) -> Tensor:
    return functional.logsigmoid(torch.where(on, logits, -logits)).sum(1)
