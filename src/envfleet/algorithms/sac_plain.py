"""The steps of SAC for plain networks, without autograd.

If actor and critics are MLPs that read vectors, and actions are a Box, autograd and the copies around it took a quarter
of the time of an update. Here the losses of `sac_losses.py` have their gradients written down, and the networks use the
same memory in every pass. The operations are the same, so the weights are bit-identical; a test compares them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from envfleet.algorithms.sac_batch import ActorStep, CriticStep, Part
from envfleet.algorithms.sac_losses import actor_loss, critic_loss, soft_values
from envfleet.algorithms.sac_targets import TargetNetworks
from envfleet.policies.relu_layers import ReluLayers
from envfleet.policies.sac_networks import Actor, Critics
from envfleet.policies.soft_actions import Choices, Squashed, squashed_sample
from envfleet.policies.twins import Twins

__all__ = ["PlainSteps"]


class PlainSteps:
    """Gradients of the critics and the actor for whole batches; they go straight into the flat gradients."""

    def __init__(self, actor: Actor, critics: Critics, targets: TargetNetworks, target_entropy: float) -> None:
        self._actor = ReluLayers(actor.layers)
        self._critics, self._targets = (ReluLayers(_layers_of(each)) for each in (critics, targets.copies))
        self._target_entropy = target_entropy
        self._sampled: Squashed | None = None  # in the observations, then in those to bootstrap from

    def critic_step(self, part: Part, alpha: Tensor, *, with_errors: bool) -> CriticStep:
        (now,), (following,), rows = part.now, part.following, len(part.returns)
        assert part.action_noise is not None
        parameters = self._actor.forward(torch.cat([now, following])).squeeze(0)
        self._sampled = sampled = squashed_sample(parameters, part.action_noise)
        choices, after = Choices(sampled.actions, None, sampled.log_probs).halves()
        assert after.actions is not None
        led_to = self._targets.forward(torch.cat([following, after.actions], dim=1))
        values = self._critics.forward(torch.cat([now, part.actions.reshape(rows, -1)], dim=1)).squeeze(2)
        targets = torch.addcmul(part.returns, part.discounts, soft_values(after, led_to, alpha))
        loss, mean = critic_loss(values, targets, part.weights), (values @ part.weights).mean()
        errors = values - targets
        self._critics.set_gradients((errors * part.weights).unsqueeze(2))
        return CriticStep(None, loss, mean, errors.abs().mean(0) if with_errors else None, choices)

    def actor_step(self, part: Part, choices: Choices, alpha: Tensor) -> ActorStep:
        (now,), weights = part.now, part.weights.unsqueeze(1)
        assert self._sampled is not None and choices.actions is not None
        values = self._critics.forward(torch.cat([now, choices.actions], dim=1))  # [twin, rows, 1]
        loss = actor_loss(choices, values, alpha, part.weights)
        smaller = values == values.amin(0)  # both, if they are equal: then each gets half of the gradient
        of_values = smaller * -weights / smaller.sum(0)
        of_actions = self._critics.gradient_of_inputs(of_values, slice(now.shape[1], None))
        of_parameters = self._sampled.gradient(of_actions, weights * alpha)
        self._actor.set_gradients(of_parameters.unsqueeze(0))
        log_probs = choices.log_probs.squeeze(1)
        excess = ((log_probs + self._target_entropy) * part.weights).sum()
        return ActorStep(None, loss, -(log_probs * part.weights).sum(), excess)


def _layers_of(critics: Critics) -> list[Tensor]:
    assert isinstance(critics.twins, Twins), "batch-normalised critics are not plain"
    return critics.twins.layers
