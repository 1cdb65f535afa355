"""SAC, soft actor-critic (Haarnoja et al. 2018), with automatic temperature; for Box and Discrete actions.

The actor maximises rewards and the entropy of its actions. Each rollout is added to the replay buffer. Then the learner
samples batches, in proportion to the collected steps, and makes one step on each of

    critics      (Q_i(s, a) - y)^2,   y = r + gamma V(s'),   V(s) = E_a [ min_i Q_target,i(s, a) - alpha log pi(a|s) ]
    actor        E_a [ alpha log pi(a|s) - min_i Q_i(s, a) ]
    temperature  -log alpha E_a [ log pi(a|s) + H ]

where H is the target of the entropy. For a Box, E_a is one sampled action; for Discrete it is the exact sum over all
actions (Christodoulou 2019). The losses are written as such (`sac_losses.py`), for all kinds of networks. What makes
them fast lies below: the twin critics are one stack of weights (`policies/twins.py`), the MLPs have explicit gradients
(`policies/relu_layers.py`), and MLPs on vectors with Box actions do without autograd (`sac_plain.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envfleet.algorithms.divergence import refuse_nan
from envfleet.algorithms.experience import build_experience, in_chunks
from envfleet.algorithms.learner import Learner
from envfleet.algorithms.rates import share_of_rate
from envfleet.algorithms.sac_batch import ActorStep, CriticStep, Noise, Part, split_sequences, split_transitions
from envfleet.algorithms.sac_losses import actor_loss, critic_loss, soft_values, temperature_gradient
from envfleet.algorithms.sac_metrics import SACUpdateMetrics
from envfleet.algorithms.sac_plain import PlainSteps
from envfleet.algorithms.sac_settings import SAC
from envfleet.algorithms.sac_targets import BootstrapValues, CriticsAlone, TargetNetworks
from envfleet.algorithms.trained_weights import TrainedWeights
from envfleet.clock import check_time
from envfleet.policies.learner_threads import LearnerThreads, torch_threads
from envfleet.policies.sac_networks import Actor, Critics
from envfleet.policies.sac_policy import SACPolicy
from envfleet.policies.soft_actions import Choices, SquashedGaussian, refuse_unreachable_entropy
from envfleet.rollout.arrays import Rollout
from envfleet.rollout.replay import Experience
from envfleet.seeding import stream

__all__ = ["SACLearner"]

Array = np.ndarray[Any, Any]
_NOISE = 17  # key of the random streams for the updates


class SACLearner(Learner):
    """Stores rollouts in a replay buffer and trains actor, critics and temperature on batches from it."""

    def __init__(
        self, settings: SAC, policy: SACPolicy, observation_space: Any, *, n_envs: int, seed: int, device: torch.device
    ) -> None:
        self._settings, self._seed, self.device = settings, seed, device
        self.policy = policy.to(device)
        self._actions, self._actor, self._critics = policy.actions, policy.actor, policy.critics
        if settings.tune_temperature and settings.target_entropy is not None:
            refuse_unreachable_entropy(settings.target_entropy, self._actions)
        slow = settings.memory_learning_rate is not None

        def trained(network: Actor | Critics) -> TrainedWeights:
            return TrainedWeights(network, apart=network.encoder.history if slow else None, beta=settings.adam_beta)

        self._actor_weights, self._critic_weights = trained(self._actor), trained(self._critics)
        self._temperature = TrainedWeights(policy.temperature)
        self._targets: BootstrapValues = (
            CriticsAlone(self._critics)
            if settings.batch_norm
            else TargetNetworks(self._critics, self._critic_weights.flat, settings.target_rate)
        )
        threads = settings.threads if device.type == "cpu" else 1  # an accelerator parallelises by itself
        # Torch shares the products of plain MLPs, and of batches that cannot be split, between threads; of other
        # networks, each thread learns from a fixed part of the batch. Torch's setting is that of the whole process, so
        # in `sync` only, when nobody else acts.
        twins = self._critics.twins
        plain = self._actor.encoder.plain and self._critics.encoder.plain and twins.plain
        self._torch_threads = threads if (plain or not twins.splits) and settings.schedule == "sync" else 1
        self._threads = LearnerThreads(threads // self._torch_threads)
        self._plain: PlainSteps | None = None
        if plain and self._threads.count == 1 and isinstance(self._actions, SquashedGaussian):
            assert isinstance(self._targets, TargetNetworks), "batch-normalised critics are not plain"
            entropy = self._actions.target_entropy(None) if settings.target_entropy is None else settings.target_entropy
            self._plain = PlainSteps(self._actor, self._critics, self._targets, entropy)
        self.experience = build_experience(
            settings,
            policy,
            observation_space,
            n_envs=n_envs,
            seed=seed,
            allowed=policy.mask_size > 0,
            sequences=settings.sequences(),
        )
        self.updates = 0
        self._collected = 0
        self._owed = 0.0  # updates that are due for the collected steps
        self._random_steps = settings.learning_starts  # steps with uniformly random actions
        self._set_random()

    def weights(self) -> Array:
        """The actor's weights, normalisers and whether actions are random, as one flat array, to be published."""
        return self._actor_weights.flat.numpy()

    def start_from(self, state: Mapping[str, Any]) -> None:
        """Restore the normaliser, copy the weights to the target networks, and act by the policy from the start.

        The temperature is this run's if it was given or is constant. Otherwise the other run's is tuned further.
        """
        self.policy.restore_normaliser(state["normaliser"])
        self._targets.begin()
        if "temperature" in self._settings.given or not self._settings.tune_temperature:
            self.policy.temperature.set(self._settings.temperature)
        self._random_steps = 0
        self._set_random()

    def notices(self) -> list[str]:
        """Return a notice about the memory of the replay buffer."""
        return [f"the replay holds {self.experience.text}"]

    def close(self) -> None:
        self._threads.close()

    # --- demonstrations

    def show(self, rollout: Rollout, until: float = math.inf) -> None:
        """Store demonstrations in a separate replay buffer and pretrain on them."""
        rollout.columns["actions"] = self._actions.from_env(rollout.columns["actions"])
        self.experience.show(rollout)
        for count in in_chunks(self._settings.pretrain_steps):
            self._make_updates(count, 1.0, SACUpdateMetrics(), until=until, shown=1.0)

    # --- one rollout

    @torch.no_grad()  # gradients are enabled where they are needed
    def learn(
        self, rollout: Rollout, begun: float, reached: float | None = None, until: float = math.inf
    ) -> dict[str, float]:
        """Store a rollout, make the updates that are due and return metrics.

        `begun` and `reached` are the fractions of the budget used before and after the rollout; the learning rates
        follow them. At the time `until` (`time.monotonic`) it stops with OutOfTimeError.
        """
        settings = self._settings
        share = share_of_rate(settings.learning_rate_schedule, begun, reached, warmup=settings.learning_rate_warmup)
        self.experience.add(rollout)
        self._collected += rollout.rewards.size
        if settings.normalise_observations:
            self.policy.update_normaliser(
                {name: torch.from_numpy(array[:-1]) for name, array in rollout.observations.items()},
                torch.from_numpy(rollout.valid),
            )
        metrics = SACUpdateMetrics()
        if self._collected >= settings.learning_starts and not self.experience.replay.nothing_happened:
            per_rollout = settings.updates_per_rollout
            self._owed += per_rollout or rollout.rewards.size * settings.updates_per_step
            due, before = int(self._owed), self.updates
            self._make_updates(due, share, metrics, until=until)
            self._owed -= self.updates - before  # without a sequence to learn from, the updates are still owed
            if self.updates > before:
                trained = (self._actor_weights.flat.data, self._critic_weights.flat.data)
                refuse_nan(f"update {self.updates}", *trained, remedy=", or set max_gradient_norm")
        self._set_random()
        return {
            **metrics.means(),
            "train/learning_rate": settings.learning_rate * share,
            "train/n_updates": float(self.updates),
            "replay/steps": float(len(self.experience.replay)),
            **({"replay/episode_too_long": 1.0} if self.experience.episode_too_long else {}),
        }

    def _set_random(self) -> None:
        """Set whether the actions of future rollouts are uniformly random."""
        with torch.no_grad():
            self._actor.random.fill_(float(self._collected < self._random_steps))

    # --- updates

    def _make_updates(
        self,
        count: int,
        share: float,
        metrics: SACUpdateMetrics,
        *,
        until: float = math.inf,
        shown: float | None = None,
    ) -> None:
        with torch_threads(self._torch_threads):
            for parts, batch in self._batches(count, shown):
                check_time(until)
                self._update(parts, batch, share, metrics)

    def _batches(self, count: int, shown: float | None = None) -> Iterator[tuple[list[Part], Experience | None]]:
        """Yield `count` batches as parts for the threads; one of transitions with the entries it was read from."""
        inputs, parts, first = self._actor.inputs, self._threads.count, self.updates
        generator = self._noise_stream()
        if self._settings.memory != "none":
            for sequences in self.experience.sequence_batches(count, first, shown=shown):
                noise = self._draw_noise(generator, sequences.mask.shape)
                yield split_sequences(sequences, noise, inputs, parts, self.device), None
            return
        for batch, weights in self.experience.batches(count, first, shown=shown):
            noise = self._draw_noise(generator, (len(batch.entries),))
            yield split_transitions(batch, weights, noise, inputs, parts, self.device), batch

    def _update(self, parts: list[Part], batch: Experience | None, share: float, metrics: SACUpdateMetrics) -> None:
        """Make one step on a batch with the critics, then the actor and the temperature, then the target networks."""
        settings = self._settings
        alpha = self.policy.temperature.alpha
        acts = self.updates % settings.actor_frequency == 0

        def critics(part: Part) -> CriticStep:
            return self._critic_step(part, alpha, acts=acts)

        def actor(pair: tuple[Part, CriticStep]) -> ActorStep:
            return self._actor_step(pair[0], pair[1].choices, alpha)

        criticised = self._threads.map(critics, parts)
        rate, of_memory = settings.learning_rate * share, (settings.memory_learning_rate or 0.0) * share
        largest, total = settings.max_gradient_norm, _sum(part.weights.sum() for part in parts)
        norm = self._critic_weights.step([each.gradients for each in criticised], largest, rate, of_memory)
        metrics.add(
            critic_loss=_sum(each.loss for each in criticised),
            q_value=_sum(each.values for each in criticised) / total,
            critic_gradient_norm=norm,
        )
        if acts:
            acted = self._threads.map(actor, list(zip(parts, criticised, strict=True)))
            norm = self._actor_weights.step([each.gradients for each in acted], largest, rate, of_memory)
            if settings.tune_temperature:
                own = settings.temperature_learning_rate
                gradient = temperature_gradient(_sum(each.excess for each in acted))
                self._temperature.step([[gradient]], None, rate if own is None else own * share)
            metrics.add(
                actor_loss=_sum(each.loss for each in acted),
                entropy=_sum(each.entropy for each in acted) / total,
                actor_gradient_norm=norm,
                ent_coef=alpha,
            )
        self._targets.follow()
        errors = [each.errors for each in criticised if each.errors is not None]
        if errors and batch is not None:
            self.experience.set_priorities(batch, torch.cat(errors).cpu().numpy())
        self.updates += 1

    def _critic_step(self, part: Part, alpha: Tensor, *, acts: bool) -> CriticStep:
        if self._plain is not None:
            return self._plain.critic_step(part, alpha, with_errors=self._settings.prioritised)
        actions = self._actions
        with torch.set_grad_enabled(acts):  # the actor's step goes back through this pass
            parameters = part.act(self._actor)
            choices, following = actions.choices(parameters, part.action_noise, part.allowed).halves()
        with torch.enable_grad():
            values, led_to = self._targets.values(part, actions.critic_actions(part.actions), following)
            values = actions.taken(values, part.actions)
            targets = torch.addcmul(part.returns, part.discounts, soft_values(following, led_to, alpha))
            loss = critic_loss(values, targets, part.weights)
        gradients = self._critic_weights.gradients(loss)
        values = values.detach()
        errors = (values - targets).abs().mean(0) if self._settings.prioritised else None  # twins must not cancel
        return CriticStep(gradients, loss.detach(), (values @ part.weights).mean(), errors, choices)

    def _actor_step(self, part: Part, choices: Choices, alpha: Tensor) -> ActorStep:
        if self._plain is not None:
            return self._plain.actor_step(part, choices, alpha)
        critics = self._critics
        with torch.no_grad():  # the action enters behind the critics' encoder, so nothing goes back through it
            now = part.encode_now(critics.encoder)
        with torch.enable_grad():
            values = critics(now, choices.actions, part.dropout[2], frozen=True)
            loss = actor_loss(choices, values, alpha, part.weights)
        gradients = self._actor_weights.gradients(loss)
        with torch.no_grad():
            log_probs = choices.expected(choices.log_probs)  # [rows]
            excess = ((log_probs + self._target_entropy(part)) * part.weights).sum()
            return ActorStep(gradients, loss.detach(), -(log_probs * part.weights).sum(), excess)

    def _target_entropy(self, part: Part) -> float | Tensor:
        given = self._settings.target_entropy
        if given is not None:
            return given
        return self._actions.target_entropy(None if part.allowed is None else part.allowed[: len(part.returns)])

    def _noise_stream(self) -> np.random.Generator:
        """Return the generator of the noise for the next updates, up to the end of the rollout."""
        return stream(self._seed, _NOISE, self.updates)

    def _draw_noise(self, generator: np.random.Generator, rows: tuple[int, ...]) -> Noise:
        size = self._actions.learner_noise
        actions = generator.standard_normal((2, *rows, size), np.float32) if size else None
        return Noise(actions, self._critics.twins.draw_dropout(generator, (3, *rows)))

    # --- state

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint, except the policy's weights and the rows of the replay buffer."""
        return {
            "updates": self.updates,
            "collected": self._collected,
            "owed": self._owed,
            "random_steps": self._random_steps,
            "adam": {name: weights.adam.state() for name, weights in self._trained.items()},
            "normaliser": self.policy.normaliser_state(),
            **self._targets.state(),
            **self.experience.state(),
        }

    def pieces(self) -> dict[str, dict[str, Array] | None]:
        return self.experience.pieces()

    def restore(self, state: Mapping[str, Any], pieces: Mapping[str, Mapping[str, Array]]) -> None:
        self.updates, self._collected, self._owed = state["updates"], state["collected"], state["owed"]
        self._random_steps = state["random_steps"]
        for name, weights in self._trained.items():
            weights.adam.restore(state["adam"][name])
        self._targets.restore(state)
        self.policy.restore_normaliser(state["normaliser"])
        self.experience.restore(state, pieces)

    def begin_fresh_episodes(self) -> None:
        self.experience.begin_fresh_episodes()

    @property
    def _trained(self) -> dict[str, TrainedWeights]:
        return {"actor": self._actor_weights, "critics": self._critic_weights, "temperature": self._temperature}


def _sum(tensors: Iterable[Tensor]) -> Tensor:
    first, *others = tensors
    return first if not others else torch.stack([first, *others]).sum()
