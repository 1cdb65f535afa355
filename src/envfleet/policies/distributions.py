"""Action distributions: sampling, log-probabilities and entropy.

Sampling takes noise as an argument and never uses a generator: the same network outputs and the same noise give the
same actions in every process. Each distribution defines the amount and kind of noise for one action.

Action masks (`[batch, mask_size]`, False or 0 forbids) set logits to -1e9: finite, so that nothing becomes NaN, and low
enough for a probability of exactly 0. A choice with all actions forbidden is treated as if all were allowed. Switches
may all be forbidden; then all stay off.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

from envfleet.errors import SettingsError

__all__ = [
    "Bernoulli",
    "Categorical",
    "Distribution",
    "Gaussian",
    "MultiCategorical",
    "Score",
    "build_distribution",
    "forbid",
]

Array = np.ndarray[Any, Any]
FORBIDDEN = -1e9
_LOG_2PI = math.log(2.0 * math.pi)
_TINY = np.finfo(np.float32).tiny


class Score(NamedTuple):
    """Log-probabilities and entropy of stored actions, with their backward pass.

    `vjp` takes the gradients of log-probabilities and entropy, both [batch] (None: no entropy term). It returns the
    gradient of the parameters [batch, n] and adds the gradients of the distribution's own weights to their `.grad`.
    Use `score` and `vjp` under `torch.no_grad`.
    """

    log_probs: Tensor  # [batch]
    entropy: Tensor  # [batch]
    vjp: Callable[[Tensor, Tensor | None], Tensor]


class Distribution(nn.Module):
    """Base class of the action distributions."""

    parameter_size: int  # network outputs per observation
    noise_size: int
    mask_size: int = 0
    action_shape: tuple[int, ...]
    action_dtype: np.dtype[Any]

    def draw_noise(self, generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Sample the noise for actions with leading dimensions `shape`: float32 [*shape, noise_size]."""
        raise NotImplementedError

    def sample(self, parameters: Tensor, noise: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Sample actions [batch, *action_shape] and return them with their log-probabilities [batch]."""
        raise NotImplementedError

    def mode(self, parameters: Tensor, mask: Tensor | None) -> Tensor:
        """Return the most likely actions [batch, *action_shape]."""
        raise NotImplementedError

    def evaluate(self, parameters: Tensor, actions: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return log-probabilities of stored actions and the entropy, both [batch]."""
        raise NotImplementedError

    def score(self, parameters: Tensor, actions: Tensor, mask: Tensor | None) -> Score:
        """Like `evaluate`, plus the backward pass; uses autograd unless a subclass has an explicit gradient."""
        leaf = parameters.detach().requires_grad_()
        with torch.enable_grad():
            log_probs, entropy = self.evaluate(leaf, actions, mask)

        def vjp(log_probs_gradient: Tensor, entropy_gradient: Tensor | None) -> Tensor:
            outputs, gradients = [log_probs], [log_probs_gradient]
            if entropy_gradient is not None and entropy.requires_grad:
                outputs.append(entropy)
                gradients.append(entropy_gradient)
            torch.autograd.backward(outputs, gradients)
            assert leaf.grad is not None
            return leaf.grad

        return Score(log_probs.detach(), entropy.detach(), vjp)

    def to_env(self, actions: Tensor) -> Tensor:
        """Convert stored actions to actions for the environment."""
        raise NotImplementedError


class Categorical(Distribution):
    """One of n choices (Discrete)."""

    def __init__(self, space: spaces.Discrete) -> None:
        super().__init__()
        self.parameter_size = self.noise_size = self.mask_size = int(space.n)
        self.action_shape, self.action_dtype = (), np.dtype(np.int64)
        self.start = int(space.start)
        self._env_dtype = _torch_dtype(space.dtype)

    def draw_noise(self, generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return _gumbel(generator, (*shape, self.noise_size))

    def sample(self, parameters: Tensor, noise: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        if mask is not None:
            parameters = forbid(parameters, mask)
        chosen = (parameters + noise).argmax(1, True)
        log_probs = torch.log_softmax(parameters, 1).gather(1, chosen)
        return chosen.squeeze(1), log_probs.squeeze(1)

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
        self._env_dtype = _torch_dtype(space.dtype)
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


class Gaussian(Distribution):
    """Diagonal Gaussian (Box), with a standard deviation that does not depend on the observation.

    bounds 'clip': the stored action and its log-probability are those of the unbounded sample; the environment gets the
    clipped action. bounds 'tanh': the stored action is the sample before tanh, its log-probability is that of
    tanh(action), in [-1, 1]; the environment gets tanh(action) scaled to the bounds. In both cases the entropy is that
    of the normal distribution, because the squashed one has no closed form.
    """

    low: Tensor  # in the dtype of the space, so that clipping is exact
    high: Tensor
    centre: Tensor
    reach: Tensor

    def __init__(self, space: spaces.Box, bounds: str, initial_log_std: float) -> None:
        super().__init__()
        self.action_shape, self.action_dtype = tuple(space.shape), np.dtype(np.float32)
        self.parameter_size = self.noise_size = self._count = math.prod(self.action_shape)
        self._tanh = bounds == "tanh"
        if self._tanh and not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            raise SettingsError(
                f"bounds is 'tanh', but the action space {space} has no finite bounds to scale to",
                hint="use bounds 'clip', or a wrapper that gives the actions bounds",
            )
        self.half_log_2pi = 0.5 * self._count * _LOG_2PI
        self.log_std: Tensor | None = nn.Parameter(torch.full((self._count,), float(initial_log_std)))
        self._env_dtype = _torch_dtype(space.dtype)
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        constants = {"low": space.low.copy(), "high": space.high.copy()}
        if self._tanh:
            constants |= {"centre": (low + high) / 2.0, "reach": (high - low) / 2.0}
        for name, constant in constants.items():
            tensor = torch.from_numpy(np.asarray(constant))
            self.register_buffer(name, tensor if name in ("low", "high") else tensor.float(), persistent=False)

    @property
    def clips(self) -> bool:
        """Whether actions are clipped at their bounds, not squashed."""
        return not self._tanh

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
        if self._tanh:
            actions = torch.addcmul(self.centre, torch.tanh(actions), self.reach)
        if not self._env_dtype.is_floating_point:
            actions = actions.round()
        return torch.clamp(actions.to(self._env_dtype), self.low, self.high)


def build_distribution(space: spaces.Space[Any], bounds: str, initial_log_std: float) -> Distribution:
    """Build the distribution for an action space."""
    if isinstance(space, spaces.Discrete):
        return Categorical(space)
    if isinstance(space, spaces.MultiDiscrete):
        return MultiCategorical(space)
    if isinstance(space, spaces.MultiBinary):
        return Bernoulli(space)
    if isinstance(space, spaces.Box):
        return Gaussian(space, bounds, initial_log_std)
    raise SettingsError(
        f"the action space is {space}, expected Box, Discrete, MultiDiscrete or MultiBinary",
        hint="use a wrapper that turns the actions into one of these, for example a flattened Box",
    )


def _gumbel(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Gumbel noise: argmax(logits + noise) samples with the probabilities softmax(logits)."""
    uniform = np.maximum(generator.random(shape, np.float32), _TINY)  # a sample can be 0, never 1
    return -np.log(-np.log(uniform))


def forbid(logits: Tensor, mask: Tensor) -> Tensor:
    """Set the logits (or Q-values) of forbidden actions to -1e9."""
    allowed = mask.bool()
    return torch.where(allowed | ~allowed.any(1, keepdim=True), logits, FORBIDDEN)


def _log_switches(logits: Tensor, on: Tensor) -> Tensor:
    return functional.logsigmoid(torch.where(on, logits, -logits)).sum(1)


def _torch_dtype(dtype: Any) -> torch.dtype:
    return torch.from_numpy(np.zeros(0, dtype)).dtype
