"""The losses of SAC. `weights` [rows] are the shares of the rows in a mean."""

from __future__ import annotations

from torch import Tensor

from envfleet.policies.soft_actions import Choices

__all__ = ["actor_loss", "critic_loss", "soft_values", "temperature_gradient"]


def soft_values(choices: Choices, values: Tensor, alpha: Tensor) -> Tensor:
    """Return V [rows] of the actor's choices; `values` [twin, rows, choice] are those of the critics."""
    return choices.expected(values.amin(0) - alpha * choices.log_probs)


def critic_loss(values: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Return half the squared error, summed over the twins; `values` are [twin, rows]."""
    return 0.5 * ((values - targets).square() * weights).sum()


def actor_loss(choices: Choices, values: Tensor, alpha: Tensor, weights: Tensor) -> Tensor:
    """Return the negative soft value."""
    return -(soft_values(choices, values, alpha) * weights).sum()


def temperature_gradient(excess: Tensor) -> Tensor:
    """Return the gradient of the temperature's loss; `excess` is the mean of log pi plus the target entropy.

    The loss is linear in log alpha instead of alpha, as in the authors' code: a step then does not shrink with alpha.
    """
    return -excess
