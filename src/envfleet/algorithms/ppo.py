"""PPO, proximal policy optimisation (Schulman et al. 2017), with the details that published results depend on.

In the order of the paper: the rollout becomes a batch with values and advantages. The learner passes over the batch
several times in shuffled minibatches. Each minibatch updates the weights by the gradient of

    L = -min(r A, clip(r, 1 - c, 1 + c) A)  +  v (V - R)^2  -  e H

where r is the probability ratio of the action (new policy to old), A its advantage, R its return, V the value and H the
entropy. The old probability is the one recorded while acting, so r also corrects for a rollout that was collected with
weights one update old (schedule "overlap").

With the schedule "async", rollouts are several updates old, so A and R come from V-trace instead of GAE: values and
probabilities are those of the newest policy, and the ratios to those recorded while acting correct for the difference.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envfleet.algorithms.adam import FlatAdam
from envfleet.algorithms.divergence import refuse_nan
from envfleet.algorithms.learner import Learner
from envfleet.algorithms.ppo_batch import Batch
from envfleet.algorithms.ppo_metrics import LossTerms, PPOUpdateMetrics, Rates, explained_variance
from envfleet.algorithms.rates import share_of_rate
from envfleet.algorithms.settings import PPO
from envfleet.algorithms.values import RolloutValues
from envfleet.clock import check_time
from envfleet.policies.copies import Copies, PolicyCopy
from envfleet.policies.flat import FlatParameters
from envfleet.policies.normalise import RewardScaler
from envfleet.policies.policy import Policy
from envfleet.rollout.advantages import generalized_advantages
from envfleet.rollout.arrays import Rollout
from envfleet.rollout.vtrace import vtrace
from envfleet.seeding import stream

__all__ = ["PPOLearner", "clipped_errors"]

Array = np.ndarray[Any, Any]
_SHUFFLE = 12  # key of the random streams that shuffle minibatches


@dataclass(frozen=True)
class _Minibatch:
    """Values that all parts of a minibatch share."""

    rates: Rates
    share: float  # weight of one row in the mean
    mean: Tensor | float = 0.0  # of the advantages, over the rows that happened
    std: Tensor | float = 1.0


def clipped_errors(values: Tensor, old_values: Tensor, returns: Tensor, limit: float) -> tuple[Tensor, Tensor]:
    """Return the errors of clipped values, and those of them that have a gradient (0 elsewhere).

    The larger of the two errors counts, as in the original implementation: of the value, and of the value that moved no
    farther than `limit`. Both are the same without clipping; rounding must not decide between them.
    """
    error, moved = values - returns, values - old_values
    clipped = old_values + moved.clamp(-limit, limit) - returns
    counted = torch.where((moved.abs() <= limit) | (error.abs() >= clipped.abs()), error, 0.0)
    return torch.maximum(error.abs(), clipped.abs()), counted


class PPOLearner(Learner):
    """Updates the policy from rollouts."""

    def __init__(self, settings: PPO, policy: Policy, *, seed: int, device: torch.device) -> None:
        self._settings, self._seed, self.device = settings, seed, device
        self.policy = policy.to(device)
        self._flat = FlatParameters(self.policy)
        # An accelerator parallelises by itself.
        self._copies = Copies(self.policy, self._flat, settings.threads if device.type == "cpu" else 1)
        # Epsilon is 1e-5, as in the original implementation.
        self._adam = FlatAdam(self._flat, epsilon=1e-5)
        self._scaler = RewardScaler(settings.gamma) if settings.normalise_rewards else None
        self._values = RolloutValues(self.policy, settings.piece_length, device)
        rows_at_once = self.policy.rows_at_once if device.type == "cpu" else None
        length = settings.piece_length if self.policy.memory_size else 1
        self._at_once = None if rows_at_once is None else max(1, rows_at_once // length)  # rows, or pieces
        self.updates = 0

    def weights(self) -> Array:
        """All weights and normalisers as one flat array, to be published."""
        return self._flat.numpy()

    def start_from(self, state: Mapping[str, Any]) -> None:
        """Restore the normalisers of observations and rewards."""
        self.policy.restore_normaliser(state["normaliser"])
        if self._scaler is not None and state.get("reward_scaler") is not None:
            self._scaler.moments.restore(state["reward_scaler"])

    # --- one rollout

    @torch.no_grad()  # gradients are enabled where they are needed
    def learn(
        self, rollout: Rollout, begun: float, reached: float | None = None, until: float = math.inf
    ) -> dict[str, float]:
        """Learn from a rollout and return metrics.

        `begun` is the fraction of the budget used before the rollout; the schedules follow it. `reached` is the
        fraction used after it; a warm-up follows that. At the time `until` (`time.monotonic`) it stops with
        OutOfTimeError, even in the middle of an update.
        """
        settings = self._settings
        rates = self._rates(begun, reached)
        values, returns, batch = self._targets(rollout)
        update_metrics = PPOUpdateMetrics()
        stopped = False
        for epoch in range(settings.epochs):
            for index in self._minibatches(batch, rollout.number, epoch):
                check_time(until)
                self._step(batch, index, rates, update_metrics)
                if settings.target_kl is not None and update_metrics.newest_kl() > 1.5 * settings.target_kl:
                    stopped = True
                    break
            if stopped:
                break
        self.updates += update_metrics.count
        metrics = update_metrics.means(settings.value_coefficient, rates)
        remedy = " (normalise_observations, normalise_rewards)"
        refuse_nan(f"rollout {rollout.number}", self._flat.data, metrics=metrics, remedy=remedy)
        if settings.normalise_observations:
            self.policy.update_normaliser(
                {name: torch.from_numpy(array[:-1]) for name, array in rollout.observations.items()},
                torch.from_numpy(rollout.valid),
            )
        return {
            **metrics,
            "train/explained_variance": explained_variance(values[rollout.valid], returns[rollout.valid]),
            "train/learning_rate": rates.learning,
            "train/clip_range": rates.clip,
            "train/entropy_coefficient": rates.entropy,
            "train/n_updates": float(self.updates),
            "train/early_stop": float(stopped),
        }

    def _rates(self, begun: float, reached: float | None) -> Rates:
        settings, warmup = self._settings, self._settings.learning_rate_warmup
        return Rates(
            settings.learning_rate * share_of_rate(settings.learning_rate_schedule, begun, reached, warmup=warmup),
            settings.clip_range * share_of_rate(settings.clip_range_schedule, begun),
            settings.entropy_coefficient * share_of_rate(settings.entropy_coefficient_schedule, begun),
        )

    # --- targets

    def _targets(self, rollout: Rollout) -> tuple[Array, Array, Batch]:
        """Return values, returns and the batch of a rollout."""
        settings = self._settings
        values, final_values = self._values.of(rollout)
        rewards = rollout.rewards
        if self._scaler is not None:
            rewards = self._scaler.scale(rewards, rollout.ended | ~rollout.valid, rollout.valid, rollout.env_ids)
        ends = (rollout.terminated, rollout.truncated, rollout.valid, final_values)
        gamma, lam = settings.gamma, settings.lam
        if settings.schedule == "async":
            log_ratios = self._values.log_probs(rollout) - rollout.columns["log_probs"]
            returns, advantages = vtrace(rewards, values, log_ratios, *ends, gamma=gamma, lam=lam)
            values = values[:-1]
        else:
            advantages = generalized_advantages(rewards, values, *ends, gamma=gamma, lam=lam)
            values = values[:-1]
            returns = advantages + values
        collected = np.stack([rollout.columns["log_probs"], advantages, returns, values])  # [4, time, env]
        length = settings.piece_length
        return values, returns, Batch.of(rollout, collected, self.policy, piece_length=length, device=self.device)

    # --- minibatches

    def _minibatches(self, batch: Batch, number: int, epoch: int) -> Iterator[Tensor]:
        """Yield shuffled rows (or pieces) in parts of nearly equal size, without rows that never happened."""
        memory = batch.memory is not None
        happened = np.flatnonzero((batch.valid.any(1) if memory else batch.valid).cpu().numpy())
        shuffled = stream(self._seed, _SHUFFLE, number, epoch).permutation(happened)
        size = self._settings.minibatch_size
        if memory:
            size = max(1, size // self._settings.piece_length)
        count = max(1, -(-len(shuffled) // size))
        for part in np.array_split(shuffled, count) if len(shuffled) else ():
            yield torch.from_numpy(part).to(self.device)

    # --- the gradient step

    def _step(self, batch: Batch, index: Tensor, rates: Rates, update_metrics: PPOUpdateMetrics) -> None:
        """Make one gradient step on a minibatch, split over the learner's threads."""
        settings, copies = self._settings, self._copies
        advantages = batch.collected[1].index_select(0, index)
        if batch.memory is not None:
            advantages = advantages[batch.valid.index_select(0, index)]
        minibatch = _Minibatch(rates, 1.0 / max(1, advantages.numel()))
        if settings.normalise_advantages and advantages.numel() > 1:
            std, mean = torch.std_mean(advantages)
            minibatch = _Minibatch(rates, minibatch.share, mean, std + 1e-8)
        parts = index.tensor_split(min(copies.count, len(index)))
        rows = copies.work(lambda copy, part: self._gradient(copy, batch, part, minibatch), parts)
        gradient = copies.gradient(len(parts))
        norm = torch.linalg.vector_norm(gradient)
        gradient.mul_((settings.max_gradient_norm / (norm + 1e-6)).clamp_(max=1.0))
        self._adam.step(rates.learning)
        update_metrics.add([terms for of_part in rows for terms in of_part], norm)

    def _gradient(self, copy: PolicyCopy, batch: Batch, part: Tensor, minibatch: _Minibatch) -> list[LossTerms]:
        """Add the gradient of a part of a minibatch to the copy's gradient: of images, a few at a time."""
        pieces = torch.split(part, self._at_once) if self._at_once else (part,)
        return [self._add_gradient(copy, batch.rows(piece), minibatch) for piece in pieces]

    def _add_gradient(self, copy: PolicyCopy, part: Batch, minibatch: _Minibatch) -> LossTerms:
        """Add the gradient of rows to the copy's gradient.

        The derivative of the loss is explicit: autograd would take longer for these few formulas than for the networks.
        `tests/algorithms` compares it with autograd.
        """
        settings = self._settings
        log_probs, advantages, returns, old_values = part.collected
        advantages = (advantages - minibatch.mean) / minibatch.std
        share: Tensor | float = minibatch.share  # of each row in the mean
        lost = part.memory is not None and not bool(part.valid.all())
        if lost:
            share = part.valid * share
        parameters, values = copy.gradient_pass.forward(part.parts(copy.policy), part.memory, part.starts)
        score = copy.policy.distribution.score(parameters, part.actions, part.mask)

        # L_policy = -min(r A, clip(r) A), and d r / d log p = r: no gradient if the clipped term is smaller.
        clip = minibatch.rates.clip
        log_ratio = score.log_probs - log_probs
        ratio = log_ratio.exp()
        gain, clipped_gain = ratio * advantages, ratio.clamp(1.0 - clip, 1.0 + clip).mul_(advantages)
        log_probs_gradient = gain * (gain <= clipped_gain) * -share

        # L_value = (V - R)^2, with clipping by `clipped_errors`.
        error = counted = values - returns
        if settings.clip_range_values is not None:
            error, counted = clipped_errors(values, old_values, returns, settings.clip_range_values)
        values_gradient = counted * (2.0 * settings.value_coefficient) * share

        # The entropy is maximised, so its loss is its negative.
        entropy_gradient = None
        if minibatch.rates.entropy:
            entropy_gradient = torch.full_like(score.entropy, -minibatch.rates.entropy) * share

        copy.gradient_pass.backward(score.vjp(log_probs_gradient, entropy_gradient), values_gradient)
        rows = (torch.minimum(gain, clipped_gain), log_ratio, error, score.entropy)
        return tuple(column[part.valid] for column in rows) if lost else rows

    def close(self) -> None:
        """Stop the learner's threads."""
        self._copies.close()

    # --- state

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint, except the policy's weights."""
        return {
            "updates": self.updates,
            "adam": self._adam.state(),
            "normaliser": self.policy.normaliser_state(),
            "reward_scaler": None if self._scaler is None else self._scaler.state(),
        }

    def restore(self, state: Mapping[str, Any], pieces: Mapping[str, Mapping[str, Array]]) -> None:
        self.updates = state["updates"]
        self._adam.restore(state["adam"])
        self.policy.restore_normaliser(state["normaliser"])
        if self._scaler is not None:
            self._scaler.restore(state["reward_scaler"])

    def begin_fresh_episodes(self) -> None:
        """Reset the running returns: the environments of the restored run begin new episodes."""
        if self._scaler is not None:
            self._scaler.begin_fresh_episodes()
