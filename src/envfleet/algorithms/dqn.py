"""DQN, deep Q-learning (Mnih et al. 2015), with the most useful extensions of Rainbow (Hessel et al. 2018).

Each rollout is added to the replay buffer. Then the learner samples batches, in proportion to the collected steps, and
moves the network towards

    y = r_1 + gamma r_2 + ... + gamma^n  Q_target(s', argmax_a Q(s', a))

With double Q-learning the online network chooses the action and the target network evaluates it. Every extension can be
switched off: double, dueling, n-step (n = 1), prioritised replay, noisy heads.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envfleet.algorithms.adam import FlatAdam
from envfleet.algorithms.divergence import refuse_nan
from envfleet.algorithms.dqn_metrics import DQNUpdateMetrics
from envfleet.algorithms.dqn_settings import DQN
from envfleet.algorithms.experience import build_experience, in_chunks
from envfleet.algorithms.learner import Learner
from envfleet.algorithms.rates import share_of_rate
from envfleet.clock import check_time
from envfleet.policies.devices import to_device
from envfleet.policies.distributions import forbid
from envfleet.policies.flat import FlatParameters
from envfleet.policies.q_manual_gradients import make_q_gradient_pass
from envfleet.policies.q_policy import QPolicy
from envfleet.rollout.arrays import Rollout
from envfleet.rollout.replay import Experience
from envfleet.seeding import stream

__all__ = ["DQNLearner"]

Array = np.ndarray[Any, Any]
_NOISE = 15  # key of the random streams for head noise


class DQNLearner(Learner):
    """Stores rollouts in a replay buffer and trains the Q-network on batches from it."""

    def __init__(
        self, settings: DQN, policy: QPolicy, observation_space: Any, *, n_envs: int, seed: int, device: torch.device
    ) -> None:
        self._settings, self._seed, self.device = settings, seed, device
        self.policy = policy.to(device)
        self._flat = FlatParameters(self.policy)
        self._target = copy.deepcopy(self.policy)
        self._target_flat = FlatParameters(self._target)
        self._gradient_pass, self._target_pass = make_q_gradient_pass(self.policy), make_q_gradient_pass(self._target)
        self._adam = FlatAdam(self._flat, epsilon=1.5e-4 if settings.noisy else 1e-8)
        self.experience = build_experience(
            settings,
            policy,
            observation_space,
            n_envs=n_envs,
            seed=seed,
            allowed=settings.margin > 0.0,
        )
        self.updates = 0
        self._collected = 0
        self._owed = 0.0  # gradient steps that are due for the collected steps
        self._set_epsilon(0.0)

    def weights(self) -> Array:
        """All weights, normalisers and epsilon as one flat array, to be published."""
        return self._flat.numpy()

    def start_from(self, state: Mapping[str, Any]) -> None:
        """Restore the normaliser, copy the weights to the target network, and explore by this run's settings."""
        self.policy.restore_normaliser(state["normaliser"])
        self._set_epsilon(0.0)  # the loaded weights have the last epsilon of the other run
        self._target_flat.copy_from(self._flat.data)

    def notices(self) -> list[str]:
        """Return a notice about the memory of the replay buffer."""
        return [f"the replay holds {self.experience.text}"]

    # --- demonstrations

    @torch.no_grad()
    def show(self, rollout: Rollout, until: float = math.inf) -> None:
        """Store demonstrations in a separate replay buffer and pretrain on them."""
        self.experience.show(rollout)
        update_metrics = DQNUpdateMetrics()
        for count in in_chunks(self._settings.pretrain_steps):
            for batch, _ in self.experience.batches(count, self.updates, shown=1.0):
                check_time(until)
                self._step(batch, None, self._settings.learning_rate, update_metrics)

    # --- one rollout

    @torch.no_grad()  # gradients are enabled where they are needed
    def learn(
        self, rollout: Rollout, begun: float, reached: float | None = None, until: float = math.inf
    ) -> dict[str, float]:
        """Store a rollout, make the gradient steps that are due and return metrics.

        `begun` is the fraction of the budget used before the rollout; the learning rate follows it. `reached` is the
        fraction used after it (default: `begun`); the exploration of later rollouts and a warm-up follow it. At the
        time `until` (`time.monotonic`) it stops with OutOfTimeError, even in the middle of the updates.
        """
        settings = self._settings
        rate = settings.learning_rate * share_of_rate(
            settings.learning_rate_schedule, begun, reached, warmup=settings.learning_rate_warmup
        )
        self.experience.add(rollout)
        self._collected += rollout.rewards.size
        if settings.normalise_observations:
            self.policy.update_normaliser(
                {name: torch.from_numpy(array[:-1]) for name, array in rollout.observations.items()},
                torch.from_numpy(rollout.valid),
            )
            # Both networks read the same inputs: old statistics in the target would shift its values.
            self._target.restore_normaliser(self.policy.normaliser_state())
        update_metrics = DQNUpdateMetrics()
        if self._collected >= settings.learning_starts and not self.experience.replay.nothing_happened:
            self._owed += rollout.rewards.size * settings.gradient_steps / settings.train_frequency
            for batch, importance_weights in self.experience.batches(int(self._owed), self.updates):
                check_time(until)
                self._step(batch, importance_weights, rate, update_metrics)
            self._owed -= int(self._owed)
        self._set_epsilon(begun if reached is None else reached)
        if update_metrics.norms:
            refuse_nan(f"update {self.updates}", self._flat.data)
        return {
            **update_metrics.means(settings.loss),
            "train/learning_rate": rate,
            "train/n_updates": float(self.updates),
            "rollout/exploration_rate": float(self.policy.epsilon),
            "replay/steps": float(len(self.experience.replay)),
        }

    def _set_epsilon(self, progress: float) -> None:
        """Set epsilon, the probability of a random action, for future rollouts."""
        settings = self._settings
        if settings.noisy:
            value = 0.0  # the noisy heads explore
        elif settings.epsilon_decay is not None:
            # Exponential decay, once per train_frequency steps.
            rounds = self._collected / settings.train_frequency
            value = max(settings.epsilon_min, settings.initial_epsilon * settings.epsilon_decay**rounds)
        else:
            share = min(1.0, progress / settings.exploration_fraction)
            value = settings.initial_epsilon + share * (settings.epsilon_min - settings.initial_epsilon)
        with torch.no_grad():
            self.policy.epsilon.fill_(value)

    # --- the gradient step

    def _step(
        self, batch: Experience, importance_weights: Array | None, rate: float, update_metrics: DQNUpdateMetrics
    ) -> None:
        """Make one gradient step on a batch. The derivative of the loss is explicit, as in PPO."""
        settings, size = self._settings, len(batch.entries)
        noise = self._head_noise(size)
        seen = self._tensors(batch.seen)
        bootstraps = settings.gamma > 0.0  # with gamma 0, no bootstrap values are needed
        values, chooser = self._gradient_pass.forward(
            seen, size, (noise[0], noise[1]), both=settings.double and bootstraps
        )
        targets = self._tensor(batch.returns[:, None])
        if bootstraps:
            targets = self._td_targets(batch, targets, seen, chooser, noise[2])
        actions = self._tensor(batch.actions[:, None])
        chosen = values.gather(1, actions)
        errors = chosen - targets
        slopes = errors.clamp(-1.0, 1.0) if settings.loss == "huber" else 2.0 * errors
        weights = None if importance_weights is None else self._tensor(importance_weights[:, None])
        slopes.mul_(1.0 / size if weights is None else weights / size)
        gradient = torch.zeros_like(values).scatter_(1, actions, slopes)
        margin = None
        if settings.margin and batch.demonstrated:
            shown = slice(batch.demonstrated)
            allowed = None if batch.allowed is None else batch.allowed[shown]
            margin = self._add_margin(values[shown], actions[shown], gradient[shown], allowed)
        self._gradient_pass.backward(gradient)
        norm = float(torch.linalg.vector_norm(self._flat.gradient))
        if norm > settings.max_gradient_norm:
            self._flat.gradient.mul_(settings.max_gradient_norm / (norm + 1e-6))
        self._adam.step(rate)
        if settings.prioritised:
            self.experience.set_priorities(batch, errors.cpu().numpy()[:, 0])
        self.updates += 1
        self._follow()
        update_metrics.add(errors, weights, chosen, norm, margin)

    def _add_margin(self, values: Tensor, actions: Tensor, gradient: Tensor, allowed: Array | None) -> Tensor:
        """Add the gradient of the large-margin loss on demonstrations (DQfD, Hester et al. 2018); return the loss."""
        lifted = values + self._settings.margin
        if allowed is not None:
            lifted = forbid(lifted, self._tensor(allowed))
        lifted.scatter_(1, actions, values.gather(1, actions))
        highest, rivals = lifted.max(1, keepdim=True)
        share = torch.full_like(highest, 1.0 / len(values))
        gradient.scatter_add_(1, rivals, share).scatter_add_(1, actions, -share)
        return (highest - values.gather(1, actions)).mean()

    def _td_targets(
        self,
        batch: Experience,
        returns: Tensor,
        seen: dict[str, Tensor],
        chooser: Tensor | None,
        noise: Tensor | None,
    ) -> Tensor:
        """Return the TD targets. Without double Q-learning (`chooser` is None) the target network chooses actions."""
        size = len(batch.entries)
        following = {name: part[size:] for name, part in seen.items()}
        valued = self._target_pass.values(following, noise)
        chooser = valued if chooser is None else chooser
        if batch.masks is not None:
            chooser = forbid(chooser, self._tensor(batch.masks))
        best = valued.gather(1, chooser.argmax(1, keepdim=True))
        return torch.addcmul(returns, self._tensor(batch.discounts[:, None]), best)

    def _head_noise(self, size: int) -> tuple[Tensor | None, ...]:
        """Sample head noise for the three passes of an update."""
        if not self._settings.noisy:
            return (None, None, None)
        generator = stream(self._seed, _NOISE, self.updates)
        drawn = self.policy.draw_noise(generator, (3, size))[:, :, -self.policy.head_noise :]
        return tuple(self._tensor(np.ascontiguousarray(part)) for part in drawn)

    def _follow(self) -> None:
        """Update the target network: by a small fraction every time, or by a full copy at intervals."""
        settings = self._settings
        if settings.target_rate is not None:
            self._target_flat.data.lerp_(self._flat.data, settings.target_rate)
        elif self.updates % settings.target_update_frequency == 0:
            self._target_flat.data.copy_(self._flat.data)

    # --- state

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint, except the policy's weights and the rows of the replay buffer."""
        return {
            "updates": self.updates,
            "collected": self._collected,
            "owed": self._owed,
            "adam": self._adam.state(),
            "target": self._target_flat.data.cpu().numpy().copy(),
            "normaliser": self.policy.normaliser_state(),
            **self.experience.state(),
        }

    def pieces(self) -> dict[str, dict[str, Array] | None]:
        return self.experience.pieces()

    def restore(self, state: Mapping[str, Any], pieces: Mapping[str, Mapping[str, Array]]) -> None:
        self.updates, self._collected, self._owed = state["updates"], state["collected"], state["owed"]
        self._adam.restore(state["adam"])
        self._target_flat.copy_from(np.array(state["target"]))
        self.policy.restore_normaliser(state["normaliser"])
        self.experience.restore(state, pieces)

    def begin_fresh_episodes(self) -> None:
        self.experience.begin_fresh_episodes()

    def _tensor(self, array: Array) -> Tensor:
        return to_device(array, self.device)

    def _tensors(self, arrays: dict[str, Array]) -> dict[str, Tensor]:
        return {name: self._tensor(array) for name, array in arrays.items()}
