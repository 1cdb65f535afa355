"""The interface of the action distributions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from envfleet.policies.backward import backward

__all__ = ["Distribution", "NumpySampler", "Score", "torch_dtype"]

Array = np.ndarray[Any, Any]


class Score(NamedTuple):
    """Log-probabilities and entropy of stored actions, with their backward pass.

    `vjp` takes the gradients of log-probabilities and entropy, both [batch] (None: no entropy term). It returns the
    gradient of the parameters [batch, n] and adds the gradients of the distribution's own weights to their `.grad`.
    Use `score` and `vjp` under `torch.no_grad`.
    """

    log_probs: Tensor  # [batch]
    entropy: Tensor  # [batch]
    vjp: Callable[[Tensor, Tensor | None], Tensor]


class NumpySampler(Protocol):
    """Returns actions for the environment, actions to store and their log-probabilities."""

    def __call__(self, parameters: Array, noise: Array, mask: Array | None) -> tuple[Array, Array, Array]: ...


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

    def numpy_sampler(self, rows: int) -> NumpySampler | None:
        """Return `sample` and `to_env` in NumPy, for batches of `rows`; None if only torch can do it."""
        return None

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
            backward(outputs, gradients)
            assert leaf.grad is not None
            return leaf.grad

        return Score(log_probs.detach(), entropy.detach(), vjp)

    def to_env(self, actions: Tensor) -> Tensor:
        """Convert stored actions to actions for the environment."""
        raise NotImplementedError


def torch_dtype(dtype: Any) -> torch.dtype:
    """Return the torch dtype of a NumPy dtype."""
    return torch.from_numpy(np.zeros(0, dtype)).dtype
