"""The actions of SAC's actor: squashed Gaussian ones for a Box, choices for Discrete.

Both give the learner `Choices`: actions with their probabilities and log-probabilities, over which it takes
expectations. For Discrete these are all actions, so the expectation is exact. For a Box it is one sampled action with
the weight 1, and its gradient flows through the sample (reparameterisation).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

from envfleet.errors import SettingsError
from envfleet.policies.distributions import Categorical, forbid, forbid_in_numpy
from envfleet.policies.distributions.bounds import Bounds

__all__ = [
    "Choices",
    "SoftActions",
    "Squashed",
    "SquashedGaussian",
    "build_soft_actions",
    "refuse_unreachable_entropy",
    "squashed_sample",
]

Array = np.ndarray[Any, Any]
_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
LOG_STD_RANGE = (-20.0, 2.0)
ENTROPY_SHARE = 0.7  # the default target for Discrete, as a share of the entropy of equally likely actions


class Choices(NamedTuple):
    """Actions to take an expectation over."""

    actions: Tensor | None  # [rows, n]: what the critics read; None if they give the values of all actions
    probs: Tensor | None  # [rows, choice]; None if each row has one sampled action
    log_probs: Tensor  # [rows, choice]

    def expected(self, values: Tensor) -> Tensor:
        """Return the mean [rows] of values [rows, choice] over the choices."""
        return values.squeeze(1) if self.probs is None else (self.probs * values).sum(1)

    def halves(self) -> tuple[Choices, Choices]:
        """Return the choices of the first half of the rows and, without a gradient, those of the second half."""
        rows = len(self.log_probs) // 2
        first, second = slice(rows), slice(rows, None)
        return (
            Choices(*(None if part is None else part[first] for part in self)),  # type: ignore[arg-type]
            Choices(*(None if part is None else part.detach()[second] for part in self)),  # type: ignore[arg-type]
        )


class SoftActions(Protocol):
    """One kind of actions. It has no weights of its own; the network gives its parameters."""

    parameter_size: int  # network outputs per observation
    noise_size: int  # random numbers for an action in the environment
    learner_noise: int  # random numbers for `choices`
    mask_size: int
    action_shape: tuple[int, ...]
    action_dtype: np.dtype[Any]
    critic_inputs: int  # numbers of an action that the critics read
    critic_outputs: int  # values that a critic gives
    largest_entropy: float  # that of uniformly random actions

    def draw_noise(self, generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Sample the noise for `sample`: float32 [*shape, noise_size]."""

    def sample(self, parameters: Tensor, noise: Tensor, mask: Tensor | None, random: Tensor) -> Tensor:
        """Return actions to store [rows, *action_shape]; uniformly random ones if `random` is 1."""

    def sample_in_numpy(self, parameters: Array, noise: Array, mask: Array | None, random: Array) -> Array:
        """Like `sample`."""

    def mode(self, parameters: Tensor, mask: Tensor | None) -> Tensor:
        """Return the best actions [rows, *action_shape]."""

    def to_env(self, actions: Tensor) -> Tensor:
        """Convert stored actions for the environment."""

    def to_env_in_numpy(self, actions: Array) -> Array:
        """Like `to_env`."""

    def from_env(self, actions: Array) -> Array:
        """Convert the environment's actions, without the start of a Discrete, to stored ones."""

    def choices(self, parameters: Tensor, noise: Tensor | None, mask: Tensor | None) -> Choices:
        """Return the actions to take an expectation over. `noise` is [rows, learner_noise]."""

    def critic_actions(self, actions: Tensor) -> Tensor | None:
        """Return stored actions as the critics read them [rows, critic_inputs]; None if they read none."""

    def taken(self, values: Tensor, actions: Tensor) -> Tensor:
        """Return the values [twin, rows] of stored actions, from the critics' outputs [twin, rows, n]."""

    def target_entropy(self, mask: Tensor | None) -> float | Tensor:
        """Return the default target, for all rows or [rows]."""


def build_soft_actions(space: spaces.Space[Any]) -> SoftActions:
    """Build the actions for an action space."""
    if isinstance(space, spaces.Discrete):
        return SoftChoices(space)
    if not isinstance(space, spaces.Box):
        raise SettingsError(
            f"the action space is {space}, expected Box or Discrete",
            hint="PPO takes MultiDiscrete and MultiBinary as well",
        )
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise SettingsError(
            f"the action space is {space}, expected finite bounds, because SAC's actions are squashed into them",
            hint="use a wrapper that gives the actions bounds, for example RescaleAction",
        )
    return SquashedGaussian(space)


def refuse_unreachable_entropy(target: float, actions: SoftActions) -> None:
    """Raise SettingsError if no policy has this entropy, because the temperature would then rise without end."""
    if target > actions.largest_entropy:
        raise SettingsError(
            f"target_entropy is {target:g}, expected at most {actions.largest_entropy:.4g}: the entropy of uniformly "
            "random actions",
            hint="leave it out for the default, or lower it",
        )


class SquashedGaussian(nn.Module):
    """tanh(mean + std * noise), scaled to the bounds. Stored actions are in [-1, 1], as are their densities."""

    def __init__(self, space: spaces.Box) -> None:
        super().__init__()
        self.bounds = Bounds(space)
        self.action_shape, self.action_dtype = tuple(space.shape), np.dtype(np.float32)
        self.mask_size, self.critic_outputs = 0, 1
        self.learner_noise = self.critic_inputs = self._count = math.prod(self.action_shape)
        self.parameter_size = self.noise_size = 2 * self._count
        self.largest_entropy = self._count * math.log(2.0)  # of [-1, 1] in every dimension

    def draw_noise(self, generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Sample normal numbers for the policy's actions, then uniform ones for random actions."""
        count = self._count
        noise = np.empty((*shape, 2 * count), np.float32)
        noise[..., :count] = generator.standard_normal((*shape, count), np.float32)
        noise[..., count:] = generator.random((*shape, count), np.float32)
        return noise

    def sample(self, parameters: Tensor, noise: Tensor, mask: Tensor | None, random: Tensor) -> Tensor:
        mean, log_std = self._mean_and_log_std(parameters)
        drawn = torch.tanh(torch.addcmul(mean, log_std.exp(), noise[:, : self._count]))
        uniform = noise[:, self._count :] * 2.0 - 1.0
        return torch.where(random > 0.0, uniform, drawn).view(-1, *self.action_shape)

    def sample_in_numpy(self, parameters: Array, noise: Array, mask: Array | None, random: Array) -> Array:
        count = self._count
        if random > 0.0:
            drawn = noise[:, count:] * np.float32(2.0) - np.float32(1.0)
        else:
            std = np.exp(np.clip(parameters[:, count:], *LOG_STD_RANGE))
            drawn = np.tanh(parameters[:, :count] + std * noise[:, :count])
        return drawn.reshape(-1, *self.action_shape)

    def mode(self, parameters: Tensor, mask: Tensor | None) -> Tensor:
        return torch.tanh(parameters[:, : self._count]).view(-1, *self.action_shape)

    def to_env(self, actions: Tensor) -> Tensor:
        return self.bounds.clipped(self.bounds.scaled(actions))

    def to_env_in_numpy(self, actions: Array) -> Array:
        return self.bounds.clipped_in_numpy(self.bounds.scaled_in_numpy(actions))

    def from_env(self, actions: Array) -> Array:
        return self.bounds.unscaled(actions)

    def choices(self, parameters: Tensor, noise: Tensor | None, mask: Tensor | None) -> Choices:
        assert noise is not None
        actions, log_probs = _SquashedSample.apply(parameters, noise)  # type: ignore[no-untyped-call]  # by torch
        return Choices(actions, None, log_probs)

    def critic_actions(self, actions: Tensor) -> Tensor | None:
        return actions.reshape(len(actions), -1)

    def taken(self, values: Tensor, actions: Tensor) -> Tensor:
        return values.squeeze(-1)

    def target_entropy(self, mask: Tensor | None) -> float:
        return -float(self._count)

    def _mean_and_log_std(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = parameters.chunk(2, dim=1)
        return mean, log_std.clamp(*LOG_STD_RANGE)


class Squashed(NamedTuple):
    """Sampled actions, and what their gradient needs."""

    actions: Tensor  # [rows, n]
    log_probs: Tensor  # [rows, 1]
    spread: Tensor  # [rows, n]: std times noise
    raw: Tensor  # [rows, n]: log_std before it is clamped

    def gradient(self, of_actions: Tensor, of_log_probs: Tensor) -> Tensor:
        """Return the gradient of mean and log_std, from those of the first rows' actions and log-probabilities."""
        actions, _, spread, raw = (part[: len(of_actions)] for part in self)
        # d tanh(x) / dx = 1 - tanh(x)^2;  d log pi / dx = 2 tanh(x), besides -1 for each log_std
        of_drawn = torch.ops.aten.tanh_backward(of_actions, actions).addcmul_(actions, of_log_probs, value=2.0)
        of_log_std = torch.addcmul(-of_log_probs, of_drawn, spread)
        clamped = (raw < LOG_STD_RANGE[0]) | (raw > LOG_STD_RANGE[1])
        return torch.cat([of_drawn, of_log_std.masked_fill_(clamped, 0.0)], dim=1)


def squashed_sample(parameters: Tensor, noise: Tensor) -> Squashed:
    """Sample actions from mean and log_std [rows, 2n] with noise [rows, n]."""
    mean, raw = parameters.chunk(2, dim=1)
    log_std = raw.clamp(*LOG_STD_RANGE)
    spread = log_std.exp().mul_(noise)
    drawn = mean + spread
    # log(1 - tanh(x)^2) = 2 (log 2 + x - softplus(2 x)), which stays precise for large x
    squashing = functional.softplus(drawn, beta=2.0).mul_(4.0).sub_(drawn, alpha=2.0)
    log_probs = squashing.sub_(log_std).addcmul_(noise, noise, value=-0.5).sum(1, keepdim=True)
    log_probs.sub_(noise.shape[1] * (_HALF_LOG_2PI + 2.0 * math.log(2.0)))
    return Squashed(drawn.tanh_(), log_probs, spread, raw)


class _SquashedSample(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, parameters: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        found = squashed_sample(parameters, noise)
        ctx.save_for_backward(*found)
        return found.actions, found.log_probs

    @staticmethod
    def backward(ctx: Any, of_actions: Tensor, of_log_probs: Tensor) -> tuple[Tensor, None]:
        return Squashed(*ctx.saved_tensors).gradient(of_actions, of_log_probs), None


class SoftChoices(nn.Module):
    """One of n choices; the critics give the values of all of them."""

    def __init__(self, space: spaces.Discrete) -> None:
        super().__init__()
        self._categorical = each = Categorical(space)
        self.parameter_size = self.noise_size = self.mask_size = self.critic_outputs = each.parameter_size
        self.action_shape, self.action_dtype = each.action_shape, each.action_dtype
        self.learner_noise = self.critic_inputs = 0
        self.largest_entropy = math.log(self.parameter_size)

    def draw_noise(self, generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return self._categorical.draw_noise(generator, shape)

    def sample(self, parameters: Tensor, noise: Tensor, mask: Tensor | None, random: Tensor) -> Tensor:
        logits = torch.where(random > 0.0, 0.0, parameters)  # equal logits: every allowed action is equally likely
        return ((logits if mask is None else forbid(logits, mask)) + noise).argmax(1)

    def sample_in_numpy(self, parameters: Array, noise: Array, mask: Array | None, random: Array) -> Array:
        logits = np.zeros_like(parameters) if random > 0.0 else parameters
        drawn: Array = ((logits if mask is None else forbid_in_numpy(logits, mask)) + noise).argmax(1)
        return drawn

    def mode(self, parameters: Tensor, mask: Tensor | None) -> Tensor:
        return self._categorical.mode(parameters, mask)

    def to_env(self, actions: Tensor) -> Tensor:
        return self._categorical.to_env(actions)

    def to_env_in_numpy(self, actions: Array) -> Array:
        return actions + self._categorical.start if self._categorical.start else actions

    def from_env(self, actions: Array) -> Array:
        return actions

    def choices(self, parameters: Tensor, noise: Tensor | None, mask: Tensor | None) -> Choices:
        log_probs = torch.log_softmax(parameters if mask is None else forbid(parameters, mask), 1)
        return Choices(None, log_probs.exp(), log_probs)

    def critic_actions(self, actions: Tensor) -> Tensor | None:
        return None

    def taken(self, values: Tensor, actions: Tensor) -> Tensor:
        index = actions.view(1, -1, 1).expand(len(values), -1, 1)
        return values.gather(2, index).squeeze(2)

    def target_entropy(self, mask: Tensor | None) -> float | Tensor:
        if mask is None:
            return ENTROPY_SHARE * math.log(self.parameter_size)
        allowed = mask.sum(1)
        return ENTROPY_SHARE * torch.where(allowed > 0, allowed, self.parameter_size).float().log()
