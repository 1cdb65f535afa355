"""Deep Q-learning (Mnih et al. 2015) with the extras of Rainbow that pay for themselves (Hessel et al. 2018).

A rollout goes into the replay; then, in proportion to what was collected, batches are drawn from it and the network
moves towards

    y = r_1 + gamma r_2 + ... + gamma^n  Q_target(s', argmax_a Q(s', a))

Double Q-learning lets the online network choose the action and the target network value it. Every extra can be switched
off: double, dueling, n-step (n = 1), prioritised replay, noisy heads.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from envfleet.algorithms.adam import FlatAdam
from envfleet.algorithms.dqn_settings import DQN
from envfleet.errors import TrainingError
from envfleet.policies.flat import FlatParameters
from envfleet.policies.q_policy import QPolicy, forbidden
from envfleet.rollout.arrays import Rollout
from envfleet.rollout.replay import Experience, Replay, joined
from envfleet.seeding import stream

__all__ = ["DQNLearner"]

Array = np.ndarray[Any, Any]
_DRAW, _NOISE = 14, 15  # keys of the streams that draw batches, and noise of the heads
_SMALLEST_PRIORITY = 1e-6
_SHOWN = "demonstrations"  # the name of their piece


class DQNLearner:
    """Turns rollouts into a replay, and batches of it into better values."""

    def __init__(
        self, settings: DQN, policy: QPolicy, observation_space: Any, *, n_envs: int, seed: int, device: torch.device
    ) -> None:
        self._settings, self._seed, self.device = settings, seed, device
        self._space = observation_space
        self.policy = policy.to(device)
        self._flat = FlatParameters(self.policy)
        self._target = copy.deepcopy(self.policy)
        self._target_flat = FlatParameters(self._target)
        self._adam = FlatAdam(self._flat, epsilon=1.5e-4 if settings.noisy else 1e-8)
        self.replay = Replay(
            observation_space,
            (policy.action_shape, policy.action_dtype),
            capacity=settings.replay_size,
            n_envs=n_envs,
            mask_size=policy.mask_size,
        )
        self._priorities: Any = None
        if settings.prioritised:
            from envfleet.rollout.sum_tree import SumTree  # compiles, so only where it is used

            self._priorities = SumTree(self.replay.rows * n_envs)
        self._highest_priority = 1.0
        self._shown: Replay | None = None  # what was demonstrated
        self._rows_seen = self._rows_saved = 0
        self._pieces: list[str] = []  # of the replay, as the last checkpoint has it
        self._shown_saved = False
        self.updates = 0
        self._collected = 0
        self._owed = 0.0  # gradient steps that what was collected so far is good for
        self._set_epsilon(0.0)

    def weights(self) -> Array:
        """All weights, normalisers and the chance of a random action, to be published."""
        return self._flat.numpy()

    def weights_given(self) -> None:
        """The target network takes part in weights that were taken over from another run."""
        self._target_flat.copy_from(self._flat.data)

    def notices(self) -> list[str]:
        """How much memory the replay takes."""
        return [f"the replay holds {self.replay.plan.text}"]

    # --- demonstrations

    def show(self, rollout: Rollout) -> None:
        """Takes demonstrations, kept apart from what is collected, and learns from them alone at first."""
        self._shown = self._room_to_show(len(rollout.rewards))
        self._shown.add(rollout)
        for _ in range(self._settings.pretrain_steps):
            self._step(self._batch(shown=1.0), 0.0)

    def _room_to_show(self, steps: int) -> Replay:
        action = (self.policy.action_shape, self.policy.action_dtype)
        return Replay(self._space, action, capacity=steps, n_envs=1, mask_size=self.policy.mask_size)

    # --- one rollout

    def learn(self, rollout: Rollout, progress: float) -> dict[str, float]:
        """Stores a rollout and learns as often as it is good for."""
        settings = self._settings
        entries = self.replay.add(rollout)
        if self._priorities is not None:
            # New experience is drawn at least once, soon; steps that never happened are never drawn.
            fresh = np.where(self.replay.happened(entries), self._highest_priority, 0.0)
            self._priorities.set(entries, fresh)
            behind = self.replay.head * self.replay.n_envs + np.arange(self.replay.n_envs)
            self._priorities.set(behind, np.zeros(self.replay.n_envs))
        self._collected += rollout.rewards.size
        self._rows_seen += len(entries) // self.replay.n_envs
        if settings.normalise_observations:
            self.policy.update_normaliser(
                {name: torch.from_numpy(array[:-1]) for name, array in rollout.observations.items()},
                torch.from_numpy(rollout.valid),
            )
        told: list[tuple[float, float, float]] = []
        if self._collected >= settings.learning_starts:
            self._owed += rollout.rewards.size * settings.gradient_steps / settings.train_frequency
            for _ in range(int(self._owed)):
                told.append(self._step(self._batch(), progress))
            self._owed -= int(self._owed)
        self._set_epsilon(progress)
        if told:
            self._refuse_nan()
        loss, value, norm = np.mean(told, axis=0).tolist() if told else (float("nan"),) * 3
        return {
            "train/loss": loss,
            "train/q_value": value,
            "train/gradient_norm": norm,
            "train/learning_rate": self._rate(progress),
            "train/n_updates": float(self.updates),
            "rollout/exploration_rate": float(self.policy.epsilon),
            "replay/steps": float(len(self.replay)),
        }

    def _rate(self, progress: float) -> float:
        linear = self._settings.learning_rate_schedule == "linear"
        return self._settings.learning_rate * (max(0.0, 1.0 - progress) if linear else 1.0)

    def _set_epsilon(self, progress: float) -> None:
        """The chance of a random action in the rollouts that begin from now on."""
        settings = self._settings
        if settings.noisy:
            value = 0.0  # the heads explore by themselves
        elif settings.epsilon_decay is not None:
            # Exponential, once per train_frequency experiences.
            rounds = self._collected / settings.train_frequency
            value = max(settings.epsilon_min, settings.initial_epsilon * settings.epsilon_decay**rounds)
        else:
            share = min(1.0, progress / settings.exploration_fraction)
            value = settings.initial_epsilon + share * (settings.epsilon_min - settings.initial_epsilon)
        with torch.no_grad():
            self.policy.epsilon.fill_(value)

    # --- a batch

    def _batch(self, *, shown: float | None = None) -> tuple[Experience, Array | None]:
        """Transitions, demonstrated ones first, and with priorities how much each is to count."""
        size = self._settings.minibatch_size
        generator = stream(self._seed, _DRAW, self.updates)
        if self._shown is None:
            return self._drawn(generator, size)
        settings = self._settings
        count = round(size * (settings.demonstration_share if shown is None else shown))
        entries = self._shown.uniform_entries(generator, count)
        parts = [replace(self._shown.take(entries, steps=settings.n_step, gamma=settings.gamma), demonstrated=count)]
        counts: list[Array] | None = None
        if count < size:
            collected, weights = self._drawn(generator, size - count)
            parts.append(collected)
            counts = None if weights is None else [np.ones(count, np.float32), weights]
        return joined(parts), None if counts is None else np.concatenate(counts)

    def _drawn(self, generator: np.random.Generator, size: int) -> tuple[Experience, Array | None]:
        """Transitions of what was collected."""
        settings = self._settings
        if self._priorities is None:
            entries = self.replay.uniform_entries(generator, size)
            return self.replay.take(entries, steps=settings.n_step, gamma=settings.gamma), None
        # One draw from each of equal parts of the mass: less variance than independent draws.
        entries = self._priorities.draw((np.arange(size) + generator.random(size)) / size)
        chance = self._priorities.priorities(entries) / self._priorities.total
        counts = (len(self.replay) * chance) ** -settings.priority_correction
        taken = self.replay.take(entries, steps=settings.n_step, gamma=settings.gamma)
        return taken, (counts / counts.max()).astype(np.float32)

    # --- the gradient step

    def _step(self, batch: tuple[Experience, Array | None], progress: float) -> tuple[float, float, float]:
        settings = self._settings
        experience, counts = batch
        size = len(experience.entries)
        noise = self._head_noise(size)
        with torch.no_grad():
            wanted = self._wanted(experience, noise)
        actions = self._tensor(experience.actions).unsqueeze(1)
        with torch.enable_grad():
            values = self.policy.q_values(self._tensors(experience.observations), noise[0])
            chosen = values.gather(1, actions).squeeze(1)
            errors = chosen - wanted
            if settings.loss == "huber":
                losses = functional.smooth_l1_loss(chosen, wanted, reduction="none")
            else:
                losses = errors.square()
            loss = (losses if counts is None else losses * self._tensor(counts)).mean()
            if settings.margin and experience.demonstrated:
                loss = loss + self._margin_loss(values[: experience.demonstrated], actions[: experience.demonstrated])
        self._flat.zero_gradient()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        with torch.no_grad():
            gradient = self._flat.gradient
            norm = torch.linalg.vector_norm(gradient)
            gradient.mul_((settings.max_gradient_norm / (norm + 1e-6)).clamp_(max=1.0))
            self._adam.step(self._rate(progress))
        if self._priorities is not None:
            collected = slice(experience.demonstrated, None)
            found = np.abs(errors.detach().cpu().numpy()[collected]).astype(np.float64) + _SMALLEST_PRIORITY
            if len(found):
                self._highest_priority = max(self._highest_priority, float(found.max()) ** settings.priority_exponent)
                self._priorities.set(experience.entries[collected], found**settings.priority_exponent)
        self.updates += 1
        self._follow()
        return float(loss.detach()), float(chosen.detach().mean()), float(norm)

    def _margin_loss(self, values: Tensor, actions: Tensor) -> Tensor:
        """How far any other action comes within the margin of the demonstrated one (Hester et al. 2018)."""
        lifted = values + self._settings.margin
        lifted = lifted.scatter(1, actions, values.gather(1, actions))
        return (lifted.max(1).values - values.gather(1, actions).squeeze(1)).mean()

    def _wanted(self, experience: Experience, noise: tuple[Tensor | None, ...]) -> Tensor:
        """What the chosen actions' values should have been."""
        if not experience.discounts.any():
            return self._tensor(experience.returns)  # nothing that follows counts, so nothing need be valued
        following = self._tensors(experience.following)
        valued = self._target.q_values(following, noise[2])
        chooser = self.policy.q_values(following, noise[1]) if self._settings.double else valued
        if experience.masks is not None:
            chooser = forbidden(chooser, self._tensor(experience.masks))
        best = valued.gather(1, chooser.argmax(1, keepdim=True)).squeeze(1)
        return self._tensor(experience.returns) + self._tensor(experience.discounts) * best

    def _head_noise(self, size: int) -> tuple[Tensor | None, ...]:
        """Noise of the heads for the three passes of an update."""
        if not self._settings.noisy:
            return (None, None, None)
        generator = stream(self._seed, _NOISE, self.updates)
        drawn = self.policy.draw_noise(generator, (3, size))[:, :, -self.policy.head_noise :]
        return tuple(self._tensor(np.ascontiguousarray(part)) for part in drawn)

    @torch.no_grad()
    def _follow(self) -> None:
        """The target network follows: a little with every update, or all at once now and then."""
        settings = self._settings
        if settings.target_rate is not None:
            self._target_flat.data.lerp_(self._flat.data, settings.target_rate)
        elif self.updates % settings.target_update_frequency == 0:
            self._target_flat.data.copy_(self._flat.data)

    def _refuse_nan(self) -> None:
        if not bool(torch.isfinite(self._flat.data.sum())):
            raise TrainingError(
                f"the weights are no longer numbers (NaN or infinite) after update {self.updates}",
                hint="the last checkpoint is sound: resume from it with a lower learning_rate, or look for rewards "
                "or observations of extreme size",
            )

    # --- state

    def state(self) -> dict[str, Any]:
        """Everything that learning depends on beside the policy's weights and the replay's rows."""
        return {
            "updates": self.updates,
            "collected": self._collected,
            "owed": self._owed,
            "adam": self._adam.state(),
            "target": self._target_flat.data.cpu().numpy().copy(),
            "normaliser": self.policy.normaliser_state(),
            "highest_priority": self._highest_priority,
            "priorities": None if self._priorities is None else self._priorities.state(),
            "replay": {"head": self.replay.head, "rows_seen": self._rows_seen, "masked": self.replay.masked},
        }

    def pieces(self) -> dict[str, dict[str, Array] | None]:
        """The replay in pieces, oldest first; only the one that is new since the last call comes with content."""
        new = min(self._rows_seen - self._rows_saved, self.replay.filled)
        fresh = f"rows-{self._rows_seen - new}-{self._rows_seen}"
        kept = [name for name in self._pieces if int(name.rpartition("-")[2]) > self._rows_seen - self.replay.filled]
        self._pieces = [*kept, fresh] if new else kept
        self._rows_saved = self._rows_seen
        parts = {name: self.replay.rows_since(new) if new and name == fresh else None for name in self._pieces}
        if self._shown is None:
            return parts
        first, self._shown_saved = not self._shown_saved, True
        return {_SHOWN: self._shown.rows_since(self._shown.filled) if first else None, **parts}

    def restore(self, state: dict[str, Any], pieces: dict[str, dict[str, Array]]) -> None:
        self.updates, self._collected, self._owed = state["updates"], state["collected"], state["owed"]
        self._adam.restore(state["adam"])
        self._target_flat.copy_from(np.array(state["target"]))
        self.policy.restore_normaliser(state["normaliser"])
        pieces = dict(pieces)
        shown = pieces.pop(_SHOWN, None)
        if shown is not None:
            self._shown = self._room_to_show(len(shown["rewards"]) - 1)
            self._shown.put_rows(shown)
            self._shown_saved = True
        rows = sum(len(piece["rewards"]) - 1 for piece in pieces.values())
        self.replay.head = (state["replay"]["head"] - rows) % self.replay.rows
        self.replay.set_masked(state["replay"]["masked"])
        for piece in pieces.values():
            self.replay.put_rows(piece)
        self._pieces = list(pieces)
        self._rows_seen = self._rows_saved = state["replay"]["rows_seen"]
        self._highest_priority = state["highest_priority"]
        if self._priorities is not None:
            self._priorities.restore(state["priorities"])

    def _tensor(self, array: Array) -> Tensor:
        return torch.from_numpy(array).to(self.device)

    def _tensors(self, arrays: dict[str, Array]) -> dict[str, Tensor]:
        return {name: self._tensor(array) for name, array in arrays.items()}
