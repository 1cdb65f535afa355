"""Proximal policy optimisation (Schulman et al. 2017), with the details that published results depend on.

In the order of the paper: the rollout becomes a batch with values and advantages, the batch is passed over
several times in shuffled minibatches, and every minibatch moves the weights by the gradient of

    L = -min(r A, clip(r, 1 - c, 1 + c) A)  +  v (V - R)^2  -  e H

where r is how much likelier the action has become since it was taken, A its advantage, R its return, V the
value, H the entropy. The probability at which an action was taken is the one recorded while acting, so a
rollout that was collected with weights one update old (schedule "overlap") is corrected for by r as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envfleet.algorithms.settings import PPO
from envfleet.errors import TrainingError
from envfleet.policies.flat import FlatParameters
from envfleet.policies.normalise import RewardScaler
from envfleet.policies.policy import Policy
from envfleet.rollout.advantages import generalized_advantages
from envfleet.rollout.arrays import Rollout
from envfleet.seeding import stream

__all__ = ["PPOLearner"]

Array = np.ndarray[Any, Any]
Observations = dict[str, Tensor]
_SHUFFLE = 12  # key of the streams that shuffle minibatches
_ROWS_AT_ONCE = 16_384  # for passes over a whole rollout without gradients


@dataclass(frozen=True)
class Batch:
    """What a minibatch is cut from. Without memory `[row, ...]`; with memory `[piece, time, ...]`."""

    observations: Observations
    actions: Tensor
    figures: Tensor  # [4, row] or [4, piece, time]: log-probability, advantage, return, value, as collected
    mask: Tensor | None
    valid: Array  # [row] or [piece, time]
    starts: Tensor | None = None  # [piece, time], with memory
    memory: Tensor | None = None  # [piece, memory], with memory

    def rows(self, index: Tensor) -> Batch:
        """Some rows (or pieces) of it."""
        return Batch(
            {name: values.index_select(0, index) for name, values in self.observations.items()},
            self.actions.index_select(0, index),
            self.figures.index_select(1, index),
            None if self.mask is None else self.mask.index_select(0, index),
            self.valid[index.numpy()] if self.memory is not None else self.valid,
            None if self.starts is None else self.starts.index_select(0, index),
            None if self.memory is None else self.memory.index_select(0, index),
        )


class PPOLearner:
    """Turns rollouts into better weights."""

    def __init__(self, settings: PPO, policy: Policy, *, seed: int, device: torch.device) -> None:
        self._settings, self._seed, self.device = settings, seed, device
        self.policy = policy
        self._flat = FlatParameters(policy)
        # Adam over one flat parameter is one kernel. Its epsilon is 1e-5, as in the original implementation.
        self._adam = torch.optim.Adam([self._flat.parameters], lr=settings.learning_rate, eps=1e-5, fused=True)
        self._scaler = RewardScaler(settings.gamma) if settings.normalise_rewards else None
        self.updates = 0

    def weights(self) -> Array:
        """All weights and normalisers as one flat array, to be published."""
        return self._flat.numpy()

    # --- one rollout

    def learn(self, rollout: Rollout, progress: float) -> dict[str, float]:
        """Learns from a rollout; `progress` is the share of the budget that is used up, for the schedules."""
        settings = self._settings
        left = max(0.0, 1.0 - progress)
        rate = settings.learning_rate * (left if settings.learning_rate_schedule == "linear" else 1.0)
        clip = settings.clip_range * (left if settings.clip_range_schedule == "linear" else 1.0)
        self._adam.param_groups[0]["lr"] = rate
        values, returns, batch = self._targets(rollout)
        told: list[Tensor] = []
        stopped = False
        for epoch in range(settings.epochs):
            for index in self._minibatches(batch, rollout.number, epoch):
                told.append(self._step(batch.rows(index), clip))
                if settings.target_kl is not None and float(told[-1][_KL]) > 1.5 * settings.target_kl:
                    stopped = True
                    break
            if stopped:
                break
        self.updates += len(told)
        self._refuse_nan(rollout.number)
        if settings.normalise_observations:
            self.policy.update_normaliser(
                {name: torch.from_numpy(array[:-1]) for name, array in rollout.observations.items()},
                torch.from_numpy(rollout.valid),
            )
        means = torch.stack(told).mean(0).tolist()
        return {
            **dict(zip(_TOLD, means, strict=True)),
            "train/explained_variance": _explained_variance(values[rollout.valid], returns[rollout.valid]),
            "train/learning_rate": rate,
            "train/clip_range": clip,
            "train/n_updates": float(self.updates),
            "train/early_stop": float(stopped),
        }

    # --- targets

    def _targets(self, rollout: Rollout) -> tuple[Array, Array, Batch]:
        """Values, returns and the batch of a rollout."""
        settings = self._settings
        values, final_values = self._values(rollout)
        rewards = rollout.rewards
        if self._scaler is not None:
            rewards = self._scaler.scale(rewards, rollout.ended | ~rollout.valid)
        advantages = generalized_advantages(
            rewards,
            values,
            rollout.terminated,
            rollout.truncated,
            rollout.valid,
            final_values,
            gamma=settings.gamma,
            lam=settings.lam,
        )
        values = values[:-1]
        returns = advantages + values
        figures = np.stack([rollout.columns["log_probs"], advantages, returns, values])  # [4, time, env]
        return values, returns, self._batch(rollout, figures)

    @torch.no_grad()
    def _values(self, rollout: Rollout) -> tuple[Array, Array]:
        """Values `[time + 1, env]`, and at `[time, env]` where an episode was truncated, of its final observation.

        Recorded ones are used where acting recorded them. Otherwise they are computed here, once per rollout, from
        the newest weights: separate networks are cheaper in one large batch than step by step, and a rollout that
        lags gets the values of the policy that learns from it.
        """
        time, envs = rollout.rewards.shape
        recorded = rollout.columns.get("values")
        values = np.empty((time + 1, envs), np.float32)
        first = 0
        if recorded is not None:
            values[:-1] = recorded
            first = time
        length = 1 if first else self._settings.piece_length
        for start in range(first, time, length) if self.policy.memory_size and not first else ():
            values[start : start + length] = self._piece_values(rollout, start, length)
            first = start + length
        rows = {name: array[first:] for name, array in rollout.observations.items()}
        edge = rollout.memory[-1] if self.policy.memory_size else None
        values[first:] = self._row_values(rows, edge).reshape(time + 1 - first, envs)
        final_values = np.zeros((time, envs), np.float32)
        at, env, k = rollout.final_rows()
        if len(at):
            final = {name: array[k, env][None] for name, array in rollout.finals.items()}
            memory = rollout.final_memory[k, env] if self.policy.memory_size else None
            final_values[at, env] = self._row_values(final, memory)
        return values, final_values

    def _row_values(self, rows: dict[str, Array], memory: Array | None) -> Array:
        """Values of observations `[time, env, ...]`, flat; with memory `[env, memory]`, of a single time."""
        if memory is not None:
            starts = torch.zeros(1, len(memory), dtype=torch.bool)
            held = torch.from_numpy(np.ascontiguousarray(memory))
            return _array(self.policy.values(self._tensors(rows), held.to(self.device), starts)).reshape(-1)
        flat = {name: array.reshape(-1, *array.shape[2:]) for name, array in rows.items()}
        count = len(next(iter(flat.values())))
        parts = [
            self.policy.values(self._tensors({name: array[i : i + _ROWS_AT_ONCE] for name, array in flat.items()}))
            for i in range(0, count, _ROWS_AT_ONCE)
        ]
        return np.concatenate([_array(part) for part in parts])

    def _piece_values(self, rollout: Rollout, start: int, length: int) -> Array:
        part = slice(start, start + length)
        memory = torch.from_numpy(rollout.memory[start // length]).to(self.device)
        starts = torch.from_numpy(rollout.starts[part]).to(self.device)
        rows = {name: array[part] for name, array in rollout.observations.items()}
        return _array(self.policy.values(self._tensors(rows), memory, starts))

    # --- minibatches

    def _batch(self, rollout: Rollout, figures: Array) -> Batch:
        time, envs = rollout.rewards.shape
        if not self.policy.memory_size:

            def flat(array: Array) -> Tensor:
                return torch.from_numpy(array.reshape(time * envs, *array.shape[2:])).to(self.device)

            return Batch(
                {name: flat(array[:-1]) for name, array in rollout.observations.items()},
                flat(rollout.columns["actions"]),
                torch.from_numpy(figures.reshape(len(figures), -1)).to(self.device),
                None if rollout.masks is None else flat(rollout.masks[:-1]),
                rollout.valid.reshape(-1),
            )
        length = self._settings.piece_length
        pieces = time // length

        def cut(array: Array) -> Array:
            """[time, env, ...] -> [piece and env, time, ...]"""
            parts = array.reshape(pieces, length, envs, *array.shape[2:]).swapaxes(1, 2)
            return np.ascontiguousarray(parts.reshape(pieces * envs, length, *array.shape[2:]))

        def cut_tensor(array: Array) -> Tensor:
            return torch.from_numpy(cut(array)).to(self.device)

        return Batch(
            {name: cut_tensor(array[:-1]) for name, array in rollout.observations.items()},
            cut_tensor(rollout.columns["actions"]),
            torch.from_numpy(np.stack([cut(part) for part in figures])).to(self.device),
            None if rollout.masks is None else cut_tensor(rollout.masks[:-1]),
            cut(rollout.valid),
            cut_tensor(rollout.starts),
            torch.from_numpy(rollout.memory[:pieces].reshape(pieces * envs, -1)).to(self.device),
        )

    def _minibatches(self, batch: Batch, number: int, epoch: int) -> Iterator[Tensor]:
        """Shuffled rows (or pieces) in parts of nearly equal size; rows that never happened are left out."""
        memory = batch.memory is not None
        happened = np.flatnonzero(batch.valid.any(axis=1) if memory else batch.valid)
        shuffled = stream(self._seed, _SHUFFLE, number, epoch).permutation(happened)
        size = self._settings.minibatch_size
        if memory:
            size = max(1, size // self._settings.piece_length)
        count = max(1, -(-len(shuffled) // size))
        for part in np.array_split(shuffled, count):
            yield torch.from_numpy(part).to(self.device)

    # --- the gradient step

    def _step(self, part: Batch, clip: float) -> Tensor:
        """Moves the weights by one minibatch; returns the figures of `_TOLD`."""
        settings = self._settings
        weights: Tensor | None = None
        if part.memory is None:
            found = self.policy.evaluate(part.observations, part.actions, part.mask)
            log_probs, advantages, returns, values = part.figures
        else:
            assert part.starts is not None
            found = self.policy.evaluate(
                {name: array.transpose(0, 1) for name, array in part.observations.items()},
                part.actions.transpose(0, 1),
                None if part.mask is None else part.mask.transpose(0, 1),
                part.memory,
                part.starts.transpose(0, 1),
            )
            log_probs, advantages, returns, values = part.figures.transpose(1, 2)  # [time, piece]
            if not part.valid.all():
                weights = torch.from_numpy(part.valid.T.astype(np.float32)).to(self.device)
                weights /= weights.mean()
        if settings.normalise_advantages:
            advantages = _standardised(advantages, weights)

        log_ratio = found.log_probs - log_probs
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1.0 - clip, 1.0 + clip)
        policy_loss = -_mean(torch.minimum(ratio * advantages, clipped * advantages), weights)
        new_values = found.values
        if settings.clip_range_values is not None:
            # The value may move only so far from the collected one, as in the original implementation.
            limit = settings.clip_range_values
            new_values = values + (new_values - values).clamp(-limit, limit)
            value_loss = _mean(torch.maximum((found.values - returns) ** 2, (new_values - returns) ** 2), weights)
        else:
            value_loss = _mean((new_values - returns) ** 2, weights)
        entropy = _mean(found.entropy, weights)
        loss = policy_loss + settings.value_coefficient * value_loss - settings.entropy_coefficient * entropy

        self._flat.zero_gradient()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        gradient = self._flat.gradient
        norm = torch.linalg.vector_norm(gradient)
        gradient.mul_((settings.max_gradient_norm / (norm + 1e-6)).clamp_(max=1.0))
        self._adam.step()
        with torch.no_grad():
            # Schulman's estimator of the divergence: low variance and never negative.
            kl = _mean((ratio - 1.0) - log_ratio, weights)
            moved = _mean((ratio != clipped).float(), weights)
            return torch.stack([loss, policy_loss, value_loss, entropy, kl, moved, norm])

    def _refuse_nan(self, number: int) -> None:
        if not bool(torch.isfinite(self._flat.data.sum())):
            raise TrainingError(
                f"the weights are no longer numbers (NaN or infinite) after rollout {number}",
                hint="the last checkpoint is sound: resume from it with a lower learning_rate, or look for rewards "
                "or observations of extreme size (normalise_observations, normalise_rewards)",
            )

    # --- state

    def state(self) -> dict[str, Any]:
        """Everything that learning depends on beside the policy's weights."""
        adam = self._adam.state.get(self._flat.parameters, {})
        return {
            "updates": self.updates,
            "adam": {name: value.detach().cpu().numpy().copy() for name, value in adam.items()},
            "normaliser": self.policy.normaliser_state(),
            "reward_scaler": None if self._scaler is None else self._scaler.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.updates = state["updates"]
        if state["adam"]:
            self._adam.state[self._flat.parameters] = {
                name: torch.from_numpy(np.array(value)).to(self.device if name != "step" else "cpu")
                for name, value in state["adam"].items()
            }
        self.policy.restore_normaliser(state["normaliser"])
        if self._scaler is not None:
            self._scaler.restore(state["reward_scaler"])

    def _tensors(self, arrays: dict[str, Array]) -> Observations:
        return {name: torch.from_numpy(array).to(self.device) for name, array in arrays.items()}


_TOLD = (
    "train/loss",
    "train/policy_gradient_loss",
    "train/value_loss",
    "train/entropy",
    "train/approx_kl",
    "train/clip_fraction",
    "train/gradient_norm",
)
_KL = _TOLD.index("train/approx_kl")


def _mean(values: Tensor, weights: Tensor | None) -> Tensor:
    """The mean over the steps that happened."""
    return values.mean() if weights is None else (values * weights).mean()


def _standardised(advantages: Tensor, weights: Tensor | None) -> Tensor:
    """Advantages with mean 0 and standard deviation 1 within the minibatch."""
    if advantages.numel() == 1:
        return advantages
    if weights is None:
        std, mean = torch.std_mean(advantages)
    else:
        mean = _mean(advantages, weights)
        std = _mean((advantages - mean) ** 2, weights).sqrt()
    return (advantages - mean) / (std + 1e-8)


def _explained_variance(values: Array, returns: Array) -> float:
    """1: the values foresee the returns; 0: no better than their mean; below: worse than that."""
    spread = float(np.var(returns))
    return float("nan") if spread == 0.0 else 1.0 - float(np.var(returns - values)) / spread


def _array(tensor: Tensor) -> Array:
    return np.asarray(tensor.detach().cpu().numpy())
