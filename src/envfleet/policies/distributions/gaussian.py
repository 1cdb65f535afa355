"""The Gaussian distribution of Box actions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

from envfleet.errors import SettingsError
from envfleet.policies.distributions.base import Distribution, NumpySampler, Score
from envfleet.policies.distributions.bounds import Bounds

__all__ = ["Gaussian"]

Array = np.ndarray[Any, Any]
_LOG_2PI = math.log(2.0 * math.pi)


class Gaussian(Distribution):
    """Diagonal Gaussian (Box), with a standard deviation that does not depend on the observation.

    bounds 'clip': the stored action and its log-probability are those of the unbounded sample; the environment gets the
    clipped action. bounds 'tanh': the stored action is the sample before tanh, its log-probability is that of
    tanh(action), in [-1, 1]; the environment gets tanh(action) scaled to the bounds. In both cases the entropy is that
    of the normal distribution, because the squashed one has no closed form.
    """

    def __init__(self, space: spaces.Box, bounds: str, initial_log_std: float) -> None:
        super().__init__()
        self.action_shape, self.action_dtype = tuple(space.shape), np.dtype(np.float32)
        self.parameter_size = self.noise_size = self._count = math.prod(self.action_shape)
        self._tanh = bounds == "tanh"
        self.bounds = Bounds(space)
        if self._tanh and not self.bounds.finite:
            raise SettingsError(
                f"bounds is 'tanh', but the action space {space} has no finite bounds to scale to",
                hint="use bounds 'clip', or a wrapper that gives the actions bounds",
            )
        self.half_log_2pi = 0.5 * self._count * _LOG_2PI
        self.log_std: Tensor | None = nn.Parameter(torch.full((self._count,), float(initial_log_std)))
        # Plain attributes: looking up a submodule costs as much as a small tensor operation.
        self._scaled, self._clipped = self.bounds.scaled, self.bounds.clipped

    def read_log_std_from_network(self) -> None:
        """Take the log_std from the network too: it outputs mean and log_std side by side, [batch, 2n]."""
        self.log_std = None
        self.parameter_size = 2 * self._count

    def draw_noise(self, generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return generator.standard_normal((*shape, self.noise_size), np.float32)

    def _mean_and_log_std(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        own = self._parameters["log_std"]  # faster than self.log_std: a module's attribute lookup is slow
        if own is not None:
            return parameters, own
        mean, log_std = parameters.chunk(2, dim=1)
        return mean, log_std

    def _log_prob(self, mean: Tensor, log_std: Tensor, std: Tensor, drawn: Tensor) -> Tensor:
        distance = (drawn - mean) / std
        # sum(distance^2 / 2 + log_std), in as few operations as possible
        log_probs = -self.half_log_2pi - torch.addcmul(log_std, distance, distance, value=0.5).sum(1)
        if self._tanh:
            # log(1 - tanh(x)^2) in a form that stays precise for large x
            log_probs = log_probs - (2.0 * (math.log(2.0) - drawn - functional.softplus(-2.0 * drawn))).sum(1)
        return log_probs

    def sample(self, parameters: Tensor, noise: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        mean, log_std = self._mean_and_log_std(parameters)
        std = log_std.exp()
        drawn = torch.addcmul(mean, std, noise)
        # Computed from the stored action, as in `evaluate`; computing it from the noise would round differently.
        return drawn.view(-1, *self.action_shape), self._log_prob(mean, log_std, std, drawn)

    def numpy_sampler(self, rows: int) -> NumpySampler | None:
        return None if self.log_std is None or self._tanh else _NumpyGaussian(self, self.log_std)

    def mode(self, parameters: Tensor, mask: Tensor | None) -> Tensor:
        return self._mean_and_log_std(parameters)[0].reshape(-1, *self.action_shape)

    def evaluate(self, parameters: Tensor, actions: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        mean, log_std = self._mean_and_log_std(parameters)
        log_probs = self._log_prob(mean, log_std, log_std.exp(), actions.reshape(len(actions), -1))
        entropy = log_std.sum(-1) + (0.5 * self._count + self.half_log_2pi)
        return log_probs, entropy.expand(len(actions))

    def score(self, parameters: Tensor, actions: Tensor, mask: Tensor | None) -> Score:
        own = self._parameters["log_std"]
        if own is None:
            return super().score(parameters, actions, mask)
        log_probs, entropy = self.evaluate(parameters, actions, mask)
        std = own.exp()
        distance = (actions.reshape(len(actions), -1) - parameters).div_(std)

        def vjp(log_probs_gradient: Tensor, entropy_gradient: Tensor | None) -> Tensor:
            # d log p / d mean = distance / std;  d log p / d log_std = distance^2 - 1;  d H / d log_std = 1
            upstream = log_probs_gradient.unsqueeze(1)
            spread = (distance.square() - 1.0).mul_(upstream).sum(0)
            if entropy_gradient is not None:
                spread += entropy_gradient.sum()
            own.grad = spread if own.grad is None else own.grad.add_(spread)
            return (distance / std).mul_(upstream)

        return Score(log_probs, entropy, vjp)

    def to_env(self, actions: Tensor) -> Tensor:
        return self._clipped(self._scaled(torch.tanh(actions)) if self._tanh else actions)


class _NumpyGaussian:
    """Same as `Gaussian.sample`, with one standard deviation for all observations and clipped actions."""

    def __init__(self, distribution: Gaussian, log_std: Tensor) -> None:
        self._log_std: Array = log_std.detach().numpy()
        self._clipped = distribution.bounds.clipped_in_numpy
        self._constant = np.float32(distribution.half_log_2pi)
        self._shape = distribution.action_shape

    def __call__(self, parameters: Array, noise: Array, mask: Array | None) -> tuple[Array, Array, Array]:
        std = np.exp(self._log_std)
        drawn = parameters + std * noise
        distance = (drawn - parameters) / std  # from the stored action, as the learner computes it
        distance *= distance
        distance *= 0.5
        distance += self._log_std
        log_probs = -self._constant - np.add.reduce(distance, axis=1)
        actions = drawn.reshape(-1, *self._shape)
        return self._clipped(actions), actions, log_probs
