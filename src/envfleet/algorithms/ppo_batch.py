"""The batch of a PPO update: a rollout as rows, or as sequences if the policy has memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envfleet.policies.devices import to_device
from envfleet.policies.inputs import JoinedInputs
from envfleet.policies.policy import Observations, Policy
from envfleet.rollout.arrays import Rollout

__all__ = ["Batch"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Batch:
    """A rollout ready for minibatches: rows `[row, ...]` or, with memory, pieces `[piece, time, ...]`."""

    seen: dict[str, Tensor]  # observations, already preprocessed if possible
    actions: Tensor
    collected: Tensor  # [4, row] or [4, piece, time]: log-probability, advantage, return, value, as collected
    mask: Tensor | None
    valid: Tensor
    starts: Tensor | None = None  # [piece, time], with memory
    memory: Tensor | None = None  # [piece, memory], with memory

    @classmethod
    def of(
        cls, rollout: Rollout, collected: Array, policy: Policy, *, piece_length: int, device: torch.device
    ) -> Batch:
        """Build the batch of a rollout; `collected` is [4, time, env]."""
        time, envs = rollout.rewards.shape
        memory = starts = None
        if policy.memory_size:
            pieces = time // piece_length

            def cut(array: Array) -> Tensor:
                """[time, env, ...] -> [piece and env, time, ...]"""
                parts = array.reshape(pieces, piece_length, envs, *array.shape[2:]).swapaxes(1, 2)
                flat = np.ascontiguousarray(parts.reshape(pieces * envs, piece_length, *array.shape[2:]))
                return to_device(flat, device)

            starts = cut(rollout.starts)
            memory = to_device(rollout.memory[:pieces].reshape(pieces * envs, -1), device)
        else:

            def cut(array: Array) -> Tensor:
                """[time, env, ...] -> [row, ...]"""
                return to_device(array.reshape(time * envs, *array.shape[2:]), device)

        return cls(
            _seen(policy, {name: cut(array[:-1]) for name, array in rollout.observations.items()}),
            cut(rollout.columns["actions"]),
            torch.stack([cut(column) for column in collected]),
            None if rollout.masks is None else cut(rollout.masks[:-1]),
            cut(rollout.valid),
            starts,
            memory,
        )

    def rows(self, index: Tensor) -> Batch:
        """Select rows; with memory, select pieces and flatten them to rows (time * piece)."""
        if self.memory is None:
            return Batch(
                {name: values.index_select(0, index) for name, values in self.seen.items()},
                self.actions.index_select(0, index),
                self.collected.index_select(1, index),
                None if self.mask is None else self.mask.index_select(0, index),
                self.valid,
            )
        assert self.starts is not None

        def chosen(values: Tensor) -> Tensor:
            return values.index_select(0, index).transpose(0, 1)  # [time, piece, ...]

        return Batch(
            {name: chosen(values).flatten(0, 1) for name, values in self.seen.items()},
            chosen(self.actions).flatten(0, 1),
            self.collected.index_select(1, index).transpose(1, 2).flatten(1),
            None if self.mask is None else chosen(self.mask).flatten(0, 1),
            chosen(self.valid).flatten(),
            chosen(self.starts),
            self.memory.index_select(0, index),
        )

    def parts(self, policy: Policy) -> list[Any]:
        """Return the observations as the networks take them."""
        return list(self.seen.values()) if isinstance(policy.inputs, JoinedInputs) else policy.read(self.seen)


def _seen(policy: Policy, observations: Observations) -> Observations:
    """Preprocess observations once for all epochs; for a user's own network, this happens in each minibatch."""
    if not isinstance(policy.inputs, JoinedInputs):
        return observations
    leading = 2 if policy.memory_size else 1
    flat = {name: values.flatten(0, leading - 1) for name, values in observations.items()}
    first = next(iter(observations.values()))
    parts = policy.read(flat)
    return {str(i): part.reshape(*first.shape[:leading], *part.shape[1:]) for i, part in enumerate(parts)}
