"""The critic's values of a rollout and the probabilities of its actions, for computing targets."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from envfleet.policies.devices import to_device
from envfleet.policies.policy import Policy
from envfleet.rollout.arrays import Rollout

__all__ = ["RolloutValues"]

Array = np.ndarray[Any, Any]
_ROWS_AT_ONCE = 16_384  # of vectors


class RolloutValues:
    """Computes values in large batches, without gradients."""

    def __init__(self, policy: Policy, piece_length: int, device: torch.device) -> None:
        self._policy, self._piece_length, self._device = policy, piece_length, device
        self._rows_at_once = (policy.rows_at_once if device.type == "cpu" else None) or _ROWS_AT_ONCE

    def of(self, rollout: Rollout) -> tuple[Array, Array]:
        """Return values `[time + 1, env]`, and values of final observations `[time, env]` of truncated episodes.

        Values recorded while acting are used if there are any. Otherwise they are computed here, once per rollout, from
        the newest weights: a separate critic is cheaper in one large batch than step by step, and a rollout that lags
        gets the values of the policy that learns from it.
        """
        time, envs = rollout.rewards.shape
        # A lost step has no recorded value, but the step before it bootstraps from that value.
        recorded = rollout.columns.get("values") if rollout.valid.all() else None
        values = np.empty((time + 1, envs), np.float32)
        first = 0
        if recorded is not None:
            values[:-1] = recorded
            first = time
        length = 1 if first else self._piece_length
        for start in range(first, time, length) if self._policy.memory_size and not first else ():
            values[start : start + length] = self._piece_values(rollout, start, length)
            first = start + length
        rows = {name: array[first:] for name, array in rollout.observations.items()}
        edge = rollout.memory[-1] if self._policy.memory_size else None
        values[first:] = self._row_values(rows, edge).reshape(time + 1 - first, envs)
        final_values = np.zeros((time, envs), np.float32)
        at, env, k = rollout.final_rows()
        if len(at):
            final = {name: array[k, env][None] for name, array in rollout.finals.items()}
            memory = rollout.final_memory[k, env] if self._policy.memory_size else None
            final_values[at, env] = self._row_values(final, memory)
        return values, final_values

    def log_probs(self, rollout: Rollout) -> Array:
        """Return log-probabilities `[time, env]` of the rollout's actions under the newest weights."""
        time, envs = rollout.rewards.shape
        found = np.empty((time, envs), np.float32)
        remembers = self._policy.memory_size > 0
        length = self._piece_length if remembers else max(1, self._rows_at_once // envs)
        for start in range(0, time, length):
            part = slice(start, min(start + length, time))
            steps = {f"observations/{name}": array[part] for name, array in rollout.observations.items()}
            steps["actions"] = rollout.columns["actions"][part]
            if rollout.masks is not None:
                steps["mask"] = rollout.masks[part]
            memory = starts = None
            if remembers:
                tensors = self._tensors(steps)
                memory = to_device(rollout.memory[start // length], self._device)
                starts = to_device(rollout.starts[part], self._device)
            else:
                tensors = self._tensors({name: array.reshape(-1, *array.shape[2:]) for name, array in steps.items()})
            actions, mask = tensors.pop("actions"), tensors.pop("mask", None)
            observations = {name.removeprefix("observations/"): rows for name, rows in tensors.items()}
            evaluated = self._policy.evaluate(observations, actions, mask, memory, starts)
            found[part] = _array(evaluated.log_probs).reshape(-1, envs)
        return found

    def _row_values(self, rows: dict[str, Array], memory: Array | None) -> Array:
        """Return flat values of observations `[time, env, ...]`; with memory `[env, memory]`, of a single time step."""
        if memory is not None:
            starts = to_device(np.zeros((1, len(memory)), np.bool_), self._device)
            held = to_device(np.ascontiguousarray(memory), self._device)
            return _array(self._policy.values(self._tensors(rows), held, starts)).reshape(-1)
        flat = {name: array.reshape(-1, *array.shape[2:]) for name, array in rows.items()}
        count, at_once = len(next(iter(flat.values()))), self._rows_at_once
        parts = [
            self._policy.values(self._tensors({name: array[i : i + at_once] for name, array in flat.items()}))
            for i in range(0, count, at_once)
        ]
        return np.concatenate([_array(part) for part in parts])

    def _piece_values(self, rollout: Rollout, start: int, length: int) -> Array:
        time, envs = slice(start, start + length), rollout.rewards.shape[1]
        at_once = envs if self._policy.rows_at_once is None else max(1, self._rows_at_once // length)
        found = []
        for first in range(0, envs, at_once):
            part = time, slice(first, first + at_once)
            memory = to_device(rollout.memory[start // length, part[1]], self._device)
            rows = self._tensors({name: array[part] for name, array in rollout.observations.items()})
            found.append(_array(self._policy.values(rows, memory, to_device(rollout.starts[part], self._device))))
        return np.concatenate(found, axis=1)

    def _tensors(self, arrays: dict[str, Array]) -> dict[str, Tensor]:
        return {name: to_device(array, self._device) for name, array in arrays.items()}


def _array(tensor: Tensor) -> Array:
    return np.asarray(tensor.detach().cpu().numpy())
